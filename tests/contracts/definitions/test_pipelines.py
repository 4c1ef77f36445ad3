"""What a pipeline's file and the contracts say of each other, without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from contracts.checks.check import check
from contracts.definitions.pipelines import declared_pipelines
from contracts.definitions.topic import Derivation
from tests import sample
from tests.contracts.files import ContractFiles

FILE = """
from contracts import topics
from spark.pipeline import pipeline

@pipeline(parcels=topics.PARCELS_DELIVERED, writes=topics.PARCELS_DELIVERED_ENRICHED)
def mine(parcels):
    return parcels
"""

BRANCH = (sample.PIPELINES / "dispatches_by_punctuality.py").read_text()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "pipelines"
    found.mkdir()
    (found / "__init__.py").touch()
    return found


def test_a_pipeline_is_read_from_its_file(folder: Path) -> None:
    (folder / "mine.py").write_text(FILE)
    ((found,), problems) = declared_pipelines(folder)
    assert (found.name, found.reads, found.writes, problems) == (
        "mine",
        "PARCELS_DELIVERED",
        ("PARCELS_DELIVERED_ENRICHED",),
        [],
    )


def test_a_branch_is_read_from_its_file(folder: Path) -> None:
    (folder / "dispatches_by_punctuality.py").write_text(BRANCH)
    ((found,), problems) = declared_pipelines(folder)
    assert (found.writes, problems) == (("PARCELS_DISPATCHED_OVERDUE", "PARCELS_DISPATCHED_PUNCTUAL"), [])
    told = check(sample.CONTRACTS, folder, sample.SERVICES)
    assert not [each for each in told if "by_punctuality.py" in str(each)]


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ('"overdue": topics.PARCELS_DISPATCHED_OVERDUE, ', "", "a branch writes two topics or more"),
        ('"overdue"', '"punctual"', "punctual stands twice: a branch has one topic for each name"),
        ("DISPATCHED_OVERDUE", "DISPATCHED_PUNCTUAL", "PARCELS_DISPATCHED_PUNCTUAL stands twice"),
        ('"overdue"', '"Over due"', "'Over due' is no name of a branch"),
        ("topics.PARCELS_DISPATCHED_OVERDUE", "'overdue'", "the topics that it reads and writes are not named"),
        ('"overdue": topics', "**topics", "'' is no name of a branch"),
        (
            "(dispatches: DataFrame)",
            "(dispatches: DataFrame, writes: DataFrame)",
            "the topics that it reads and writes are not named",
        ),
        ("(dispatches: DataFrame)", "(dispatches, dispatches)", "a branch reads one topic, and this one joins two"),
    ],
)
def test_a_branch_without_names_and_topics_is_a_problem(folder: Path, old: str, new: str, what: str) -> None:
    assert old in BRANCH
    (folder / "dispatches_by_punctuality.py").write_text(BRANCH.replace(old, new))
    found, (problem,) = declared_pipelines(folder)
    assert found == []
    assert what in str(problem)


def test_no_pipeline_is_called_as_the_folders_of_the_lake(folder: Path) -> None:
    (folder / "lake.py").write_text(BRANCH.replace("def dispatches_by_punctuality", "def lake"))
    found, (problem,) = declared_pipelines(folder)
    assert found == []
    assert "lake is the name of the lake's folders" in str(problem)


def test_each_topic_of_a_branch_has_only_some_of_the_records(files: ContractFiles) -> None:
    files.replace("topics/parcels.dispatched.punctual.v1.yaml", "records: some", "records: each")
    what = "dispatches_by_punctuality.py writes each record to one of 2 topics, so this one has only some of them"
    (problem,) = [each for each in files.problems() if what in each]
    assert problem.startswith("contracts/topics/parcels.dispatched.punctual.v1.yaml:8: ")
    assert "write {topic: parcels.dispatched.v1, records: some}" in problem


def test_a_branch_stands_in_the_contract_of_each_of_its_topics(files: ContractFiles) -> None:
    contract = "topics/parcels.dispatched.punctual.v1.yaml"
    files.replace(contract, "producers: [dispatches_by_punctuality]", "producers: [heavy_parcels]")
    problems = [each for each in files.problems() if "parcels.dispatched.punctual" in each]
    assert any(
        "dispatches_by_punctuality.py is not among them: add dispatches_by_punctuality" in each for each in problems
    )
    assert any("heavy_parcels.py does not write this topic" in each for each in problems)


def test_a_pipeline_that_joins_reads_two_topics_in_the_order_of_its_contract(folder: Path) -> None:
    joining = (sample.PIPELINES / "parcel_trips.py").read_text()
    (folder / "parcel_trips.py").write_text(joining)
    ((found,), problems) = declared_pipelines(folder)
    assert (found.reads, found.second, problems) == ("PARCELS_DISPATCHED", "PARCELS_DELIVERED", [])
    assert not [each for each in check(sample.CONTRACTS, folder, sample.SERVICES) if "parcel_trips.py" in str(each)]
    swapped = joining.replace("(dispatches: DataFrame, deliveries: DataFrame)", "(deliveries, dispatches)")
    (folder / "parcel_trips.py").write_text(swapped)
    told = (
        "makes it of parcels.delivered.v1 and parcels.dispatched.v1, but it is derived from parcels.dispatched.v1 and"
    )
    assert [each for each in check(sample.CONTRACTS, folder, sample.SERVICES) if told in str(each)]


def test_a_pipeline_that_unites_reads_two_topics_in_the_order_of_its_contract(folder: Path) -> None:
    uniting = (sample.PIPELINES / "losses_by_origin.py").read_text()
    (folder / "losses_by_origin.py").write_text(uniting)
    ((found,), problems) = declared_pipelines(folder)
    assert (found.reads, found.second, problems) == ("PARCELS_DISPATCHED", "PARCELS_LOST", [])
    assert not [each for each in check(sample.CONTRACTS, folder, sample.SERVICES) if "losses_by_origin.py" in str(each)]
    swapped = uniting.replace("(dispatches: DataFrame, losses: DataFrame)", "(losses, dispatches)")
    (folder / "losses_by_origin.py").write_text(swapped)
    cure = (
        "write {topic: parcels.lost.v1, united_with: parcels.dispatched.v1, records: aggregate, late_after_minutes: 60}"
    )
    assert [each for each in check(sample.CONTRACTS, folder, sample.SERVICES) if cure in str(each)]


@pytest.mark.parametrize(
    ("derivation", "told"),
    [
        ({"records": "join", "joined_with": "parcels.delivered.v1"}, "late_after_minutes belongs to"),
        ({"records": "join", "late_after_minutes": 60}, "joined_with belongs to records: join"),
        ({"records": "each", "joined_with": "parcels.delivered.v1"}, "joined_with belongs to records: join"),
        (
            {"records": "join", "joined_with": "parcels.dispatched.v1", "late_after_minutes": 60},
            "joined_with names another topic",
        ),
        (
            {"records": "distinct", "named_by": ["parcel_id"]},
            "late_after_minutes belongs to records: aggregate, join, dist",
        ),
        (
            {"records": "aggregate", "united_with": "parcels.dispatched.v1", "late_after_minutes": 60},
            "united_with names another topic",
        ),
        ({"records": "each", "united_with": "parcels.lost.v1"}, "united_with belongs to records: aggregate"),
        ({"records": "distinct", "late_after_minutes": 60}, "named_by belongs to records: distinct"),
        (
            {"records": "aggregate", "late_after_minutes": 60, "watermark_of": "faster"},
            "watermark_of belongs to records: join",
        ),
        ({"records": "ranking"}, "places belongs to records: ranking"),
        ({"records": "each", "places": 3}, "places belongs to records: ranking"),
        ({"records": "ranking", "places": 3, "late_after_minutes": 60}, "late_after_minutes belongs to"),
        ({"records": "ranking", "places": 1001}, "less than or equal to 1000"),
        ({"records": "some", "named_by": ["parcel_id"]}, "named_by belongs to records: distinct"),
        (
            {"records": "distinct", "named_by": ["parcel_id", "parcel_id"], "late_after_minutes": 60},
            "named_by has a field twice",
        ),
    ],
)
def test_what_belongs_to_a_kind_of_records_stands_there_and_nowhere_else(
    derivation: dict[str, object], told: str
) -> None:
    with pytest.raises(ValidationError, match=told):
        Derivation.model_validate({"topic": "parcels.dispatched.v1", **derivation})


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("def mine", "def other", "there is not exactly one pipeline mine: decorate one function with @pipeline"),
        ("@pipeline", "@other", "there is not exactly one pipeline mine"),
        ("def mine(parcels)", "def mine(deliveries)", "the topics that it reads and writes are not named"),
        ("def mine(parcels)", "def mine(parcels, more)", "the topics that it reads and writes are not named"),
        ("topics.PARCELS_DELIVERED,", "'parcels',", "the topics that it reads and writes are not named"),
        (", writes=topics.PARCELS_DELIVERED_ENRICHED", "", "the topics that it reads and writes are not named"),
        ("def mine", "def def", "not Python: invalid syntax"),
    ],
)
def test_a_file_without_a_readable_pipeline_is_a_problem(folder: Path, old: str, new: str, what: str) -> None:
    (folder / "mine.py").write_text(FILE.replace(old, new))
    found, (problem,) = declared_pipelines(folder)
    assert found == []
    assert what in str(problem)


def test_a_pipeline_that_no_contract_lists_is_a_problem_of_both_topics(folder: Path) -> None:
    (folder / "mine.py").write_text(FILE)
    problems = [str(each) for each in check(sample.CONTRACTS, folder, sample.SERVICES) if "mine" in str(each)]
    assert len([each for each in problems if "pipelines/mine.py is not among them: add mine" in each]) == 2


def test_what_a_pipeline_does_is_what_the_contracts_say(files: ContractFiles) -> None:
    files.replace("topics/depots.observed.v1.yaml", "consumers: [alerting]", "consumers: [heavy_parcels]")
    files.replace(
        "topics/parcels.dispatched.heavy.v1.yaml", "{topic: parcels.dispatched.v1", "{topic: parcels.delivered.v1"
    )
    problems = files.problems()
    assert any("sample/pipelines/heavy_parcels.py does not read this topic" in each for each in problems)
    assert any(
        "makes it of parcels.dispatched.v1, but it is derived from parcels.delivered.v1" in each for each in problems
    ), problems


def test_two_pipelines_of_one_topic_and_a_name_that_is_taken_are_problems(folder: Path) -> None:
    for name in ("mine", "yours", "repair"):
        (folder / f"{name}.py").write_text(FILE.replace("def mine", f"def {name}"))
    (folder / ".#mine.py").symlink_to("nowhere")
    (folder / "_helper.py").write_text("")
    problems = [str(each) for each in check(sample.CONTRACTS, folder, sample.SERVICES)]
    assert any("mine and repair and yours write it" in each for each in problems)
    assert any("pipelines/repair.py:1: repair is a service or a command already" in each for each in problems)
    assert not any("helper" in each or "#" in each for each in problems)


def test_a_topic_that_a_pipeline_names_has_a_contract(folder: Path) -> None:
    (folder / "mine.py").write_text(FILE.replace("PARCELS_DELIVERED,", "PARCELS_WEIGHED,"))
    assert any(
        "mine.py:5: there is no contract of topics.PARCELS_WEIGHED" in str(each)
        for each in check(sample.CONTRACTS, folder, sample.SERVICES)
    )


ONCE = "topics/parcels.dispatched.once.v1.yaml"


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (
            "named_by: [parcel_id]",
            "named_by: [parcel_id, van_id]",
            ":8: 'van_id' of parcels.dispatched.v1 is of type string?: name an event by fields that are never null and have no default",
        ),
        (
            "named_by: [parcel_id]",
            "named_by: [gate]",
            ":8: 'gate' of parcels.dispatched.v1 is not there: name an event",
        ),
        (
            "key: parcel_id",
            "key: courier",
            ":6: it has the key courier, and parcels.dispatched.v1 has parcel_id: an event keeps its key, and its order: write",
        ),
        (
            "occurred_at: dispatched_at",
            "occurred_at: due_at",
            ":7: its events are of due_at, and those of parcels.dispatched.v1 of dispatched_at: write dispatched_at: an event",
        ),
    ],
)
def test_distinct_events_are_named_and_kept_as_their_source_has_them(
    files: ContractFiles, old: str, new: str, told: str
) -> None:
    files.replace(ONCE, old, new)
    assert [each for each in files.problems() if f"{ONCE}{told}" in each]


def test_fields_that_name_an_event_are_carried_on_as_they_are(files: ContractFiles) -> None:
    files.replace(ONCE, "named_by: [parcel_id]", "named_by: [parcel_id, parcel_number]")
    topic = "parcels.dispatched.once.v1"
    assert not [each for each in files.problems() if topic in each]
    schema = files.schema(topic)
    (field,) = [each for each in schema["fields"] if each["name"] == "parcel_number"]
    field["type"] = "long"
    files.write_schema(topic, 1, schema)
    told = "'parcel_number' is of type long, in parcels.dispatched.v1 it is of type int: carry it on as it is"
    assert [each for each in files.problems() if f"{ONCE}:8: {told}" in each]
    schema["fields"].remove(field)
    files.write_schema(topic, 1, schema)
    assert [each for each in files.problems() if "'parcel_number' is not in the schema" in each]


@pytest.mark.parametrize("inside", [False, True])
def test_a_field_with_a_default_names_no_event(files: ContractFiles, *, inside: bool) -> None:
    """Of an enum the default is that of a symbol that the reader lacks."""
    source = "parcels.dispatched.v1"
    schema = files.schema(source)
    (field,) = [each for each in schema["fields"] if each["name"] == "parcel_id"]
    kind = {"type": "enum", "name": "Kind", "doc": "A kind.", "symbols": ["A", "B"], "default": "A"}
    field.update({"type": kind} if inside else {"default": ""})
    files.write_schema(source, 1, schema)
    told = f"{ONCE}:8: 'parcel_id' of {source} is a field with a default, which would be the name of each event"
    assert [each for each in files.problems() if told in each]


LOOKING_UP = (sample.PIPELINES / "dispatches_enriched.py").read_text()


def test_lookups_are_read_from_the_file_with_their_lines(folder: Path) -> None:
    (folder / "dispatches_enriched.py").write_text(LOOKING_UP)
    ((found,), problems) = declared_pipelines(folder)
    assert problems == []
    assert found.lookups is not None
    lines = LOOKING_UP.splitlines()
    assert [
        (each.name, each.by, '"' + each.name + '"' in lines[line - 1] + lines[line])
        for each, line in found.lookups.items()
    ] == [
        ("couriers", "courier", True),
        ("depots.origin", "origin", True),
        ("depots.destination", "destination", True),
        ("vans", "van_id", True),
    ]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("LOOKUPS = (", "LOOKUPS = (*others(),"),
        ('by="courier"', "by=KEY"),
        ('by="courier"', "by=3"),
        ("LOOKUPS = (", "LOOKUPS = ()\nLOOKUPS = ("),
        ("lookups=LOOKUPS", "lookups=others.LOOKUPS"),
        ("lookups=LOOKUPS", '**{"lookups": LOOKUPS}'),
        ("@pipeline", "LOOKUPS += others()\n\n\n@pipeline"),
        ("@pipeline", "LOOKUPS.append(others())\n\n\n@pipeline"),
        ('by="courier"', 'by={"courier", "origin"}'),
        ('Lookup("couriers"', 'Lookup(*others, "couriers"'),
    ],
)
def test_lookups_that_are_computed_are_left_to_the_start(folder: Path, old: str, new: str) -> None:
    assert old in LOOKING_UP
    (folder / "dispatches_enriched.py").write_text(LOOKING_UP.replace(old, new))
    ((found,), problems) = declared_pipelines(folder)
    assert (found.lookups, problems) == (None, [])
    told = [str(each) for each in check(sample.CONTRACTS, folder, sample.SERVICES)]
    assert not [
        each for each in told if "dispatches_enriched" in each and "dimensions" in each and "deployable" not in each
    ]


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('dimension="couriers"', 'dimension="courier"', "py:11: lookup couriers: there is no dimension courier: did you mean couriers?"),
        ('"courier_name": "name"', '"courier_name": "nam"', "py:11: lookup couriers: couriers has no column nam: did you mean name?"),
        ('by="courier"', 'by="curier"', "py:11: lookup couriers: parcels.dispatched.v1 has no field curier: did you mean courier?"),
        (
            'by="courier"',
            'by="parcel_number"',
            "parcel_number is int, the key column courier of couriers is string: look up by a field of the column's type",
        ),
        ('by="courier"', 'by=("courier", "origin")', "couriers has the key courier, it looks up by courier, origin: name one field for each"),
        ('"courier_name": "name"', '"origin": "name"', "py:11: lookup couriers: origin is filled in already: choose another name"),
        ('Lookup("couriers"', 'Lookup("vans"', "lookup vans: its name is not one of its own: choose another, of lower-case words"),
    ],
)  # fmt: skip
def test_a_lookup_that_the_contracts_do_not_bear_is_told_without_spark(
    folder: Path, old: str, new: str, told: str
) -> None:
    assert old in LOOKING_UP
    (folder / "dispatches_enriched.py").write_text(LOOKING_UP.replace(old, new, 1))
    found = [str(each) for each in check(sample.CONTRACTS, folder, sample.SERVICES)]
    assert [each for each in found if told in each] != [], found


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('by="courier"', 'by="courier", asof="dispatched_at"', "py:11: a lookup has no asof: did you mean as_of?"),
        ('"couriers", dim', '"couriers", name="x", dim', "py:11: a lookup's name is given twice: give it once"),
        (', fields={"courier_name": "name"}', "", "py:11: a lookup lacks fields: add fields=…"),
        ('"couriers", dim', '"couriers", "x", "y", {}, None, 3), *others(dim', "py:11: a lookup has at most 5 arguments: name, dimension, by"),
    ],
)  # fmt: skip
def test_what_a_lookup_does_not_take_is_told(folder: Path, old: str, new: str, told: str) -> None:
    assert old in LOOKING_UP
    (folder / "dispatches_enriched.py").write_text(LOOKING_UP.replace(old, new, 1))
    found, (problem,) = declared_pipelines(folder)
    assert found == []
    assert told in str(problem)


def test_a_field_is_looked_up_by_what_spark_takes_it_for(files: ContractFiles, folder: Path) -> None:
    schema = files.schema("parcels.dispatched.v1")
    depot = {"type": "enum", "name": "Depot", "symbols": ["EST"]}
    kinds = {"courier": {"type": "string", "logicalType": "iata-code"}, "origin": depot, "destination": "Depot"}
    for field in schema["fields"]:
        field["type"] = kinds.get(field["name"], field["type"])
    files.write_schema("parcels.dispatched.v1", 1, schema)
    (folder / "dispatches_enriched.py").write_text(LOOKING_UP)
    found = [str(each) for each in check(files.root, folder, sample.SERVICES)]
    assert [each for each in found if "lookup " in each] == []


@pytest.mark.parametrize(
    "schema", [{"type": "record", "name": "A", "fields": [{"name": "a"}]}, 5, "string", []], ids=str
)
def test_of_a_schema_that_is_none_only_that_is_told(files: ContractFiles, folder: Path, schema: object) -> None:
    files.write_schema("parcels.dispatched.v1", 1, schema)
    (folder / "dispatches_enriched.py").write_text(LOOKING_UP)
    found = [str(each) for each in check(files.root, folder, sample.SERVICES)]
    assert [each for each in found if "schemas/parcels.dispatched.v1/1.avsc" in each]
    assert [each for each in found if "lookup " in each] == []


def test_what_depends_on_other_records_can_t_look_up(folder: Path) -> None:
    counting = (sample.PIPELINES / "delays_by_origin.py").read_text()
    lookups = 'lookups=(Lookup("couriers", "couriers", "courier", {"x": "name"}),)'
    (folder / "delays_by_origin.py").write_text(counting.replace("writes=", f"{lookups}, writes=", 1))
    found = [str(each) for each in check(sample.CONTRACTS, folder, sample.SERVICES)]
    what = "it has lookups, and what it makes of a record depends on others (records: aggregate): leave the lookups out"
    assert [each for each in found if what in each]


def test_a_lookup_in_sql_is_told_with_its_line(folder: Path) -> None:
    (folder / "dispatches_enriched.sql").write_text(
        "/*\nreads: {dispatches: parcels.dispatched.v1}\nwrites: parcels.dispatched.enriched.v1\nlookups:\n"
        "  - {name: couriers, dimension: couriers, by: courier, fields: {courier_name: name}}\n"
        "  - {name: vans, dimension: vns, by: van_id, fields: {van_seats: seats}}\n*/\nSELECT * FROM dispatches\n"
    )
    told = [str(each) for each in check(sample.CONTRACTS, folder, sample.SERVICES)]
    assert [each.partition("/")[2] for each in told if "lookup " in each] == [
        "pipelines/dispatches_enriched.sql:6: lookup vans: there is no dimension vns: did you mean vans?"
    ]


def test_a_dimension_names_the_pipelines_that_look_up_in_it(files: ContractFiles) -> None:
    vans = "dimensions/vans.yaml"
    files.replace(vans, "consumers: [dispatches_enriched, ", "consumers: [heavy_parcels, ")
    (added, superfluous) = [each for each in files.problems() if "vans.yaml" in each]
    assert added.startswith("contracts/dimensions/vans.yaml:4: ")
    assert added.endswith("dispatches_enriched.py is not among them: add dispatches_enriched")
    assert superfluous.endswith("heavy_parcels.py looks nothing up in it: take heavy_parcels out, or add the lookup")


def test_nothing_is_said_of_a_dimension_that_cannot_be_read(files: ContractFiles) -> None:
    files.replace("dimensions/vans.yaml", "owner:", "ownr:")
    assert [each for each in files.problems() if "lookup" in each] == []


IN_TIME = """key: [courier]
valid: {from: since, until: until}
"""
SINCE = """columns:
  - {name: since, source: since, type: timestamp, nullable: false, description: From when on.}
  - {name: until, source: until, type: timestamp, nullable: true, description: Until when.}
"""


@pytest.mark.parametrize(
    ("as_of", "told"),
    [
        (', as_of="dispatched_at"', None),
        ("", "the rows of couriers hold for a time: name the event's time with as_of"),
        (', as_of="dispatch_at"', "parcels.dispatched.v1 has no field dispatch_at: did you mean dispatched_at?"),
        (', as_of="parcel_number"', "parcel_number is int: look up as of a field of type timestamp-millis or timestamp-micros"),
    ],
)  # fmt: skip
def test_a_lookup_in_rows_that_hold_for_a_time_names_the_time(
    files: ContractFiles, folder: Path, as_of: str, told: str | None
) -> None:
    files.replace("dimensions/couriers.yaml", "key: [courier]\n", IN_TIME)
    files.replace("dimensions/couriers.yaml", "columns:\n", SINCE)
    (folder / "dispatches_enriched.py").write_text(LOOKING_UP.replace('by="courier"', f'by="courier"{as_of}', 1))
    found = [str(each) for each in check(files.root, folder, sample.SERVICES)]
    assert [each.partition("lookup couriers: ")[2] for each in found if "lookup " in each] == ([told] if told else [])


def test_as_of_is_refused_where_rows_hold_at_any_time(folder: Path) -> None:
    (folder / "dispatches_enriched.py").write_text(
        LOOKING_UP.replace('by="courier"', 'by="courier", as_of="dispatched_at"', 1)
    )
    found = [str(each) for each in check(sample.CONTRACTS, folder, sample.SERVICES)]
    assert [each.partition("lookup ")[2] for each in found if "lookup " in each] == [
        "couriers: couriers has one row for each key, which holds at any time: leave as_of out"
    ]

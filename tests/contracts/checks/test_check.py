from __future__ import annotations

import json
import shutil
import time

import pytest
from typer.testing import CliRunner

from contracts.checks.check import check
from contracts.checks.release import release
from contracts.cli import contracts_app
from contracts.definitions.catalog import load_catalog
from contracts.errors import ContractError
from tests.contracts.files import ContractFiles

DISPATCHED = "topics/parcels.dispatched.v1.yaml"
SCHEMA = "schemas/parcels.dispatched.v1/1.avsc"


def test_the_contracts_keep_every_rule_and_the_check_is_fast() -> None:
    begin = time.process_time()
    assert [str(problem) for problem in check()] == []
    assert time.process_time() - begin < 2.0


@pytest.mark.parametrize(
    ("file", "old", "new", "expected"),
    [
        (DISPATCHED, "owner:", "ownr:", "yaml:3: unknown key 'ownr': did you mean 'owner'?"),
        (DISPATCHED, "owner:", "ownr:", "yaml:1: key 'owner' is missing: add 'owner:'"),
        (
            DISPATCHED,
            "  format: delta",
            "  fromat: delta",
            "yaml:21: unknown key 'lake.fromat': did you mean 'format'?",
        ),
        (
            DISPATCHED,
            "partitions: 2",
            "partitions: 2\npartitions: 3",
            "yaml:10: not readable as YAML: key 'partitions'",
        ),
        (DISPATCHED, "description: E", "description: 'E", "not readable as YAML"),
        (
            DISPATCHED,
            "retention_days: 30\nproducers",
            "retention_days: 31\nproducers",
            "yaml:18: they are kept for 30 days, and records for 31: that of an old record would be deleted at once: set it to 31",
        ),
        (DISPATCHED, "owner: ", "owner: 2013-02-30 #", "yaml:3: not readable as YAML: a value that is no timestamp"),
        (DISPATCHED, "owner: ", "owner: !!int x #", "yaml:3: not readable as YAML: a value that is no int"),
        (DISPATCHED, "owner: ", "owner: !!bool x #", "yaml:3: not readable as YAML: a value that is no bool"),
        (DISPATCHED, "owner: ", "owner: {{x}} #", "yaml:3: not readable as YAML: found unhashable key"),
        (DISPATCHED, "owner: ", "owner: é\x01", "yaml:3: not readable as YAML: control characters are not allowed"),
        (DISPATCHED, "owner: ", "owner: \udcff", "yaml:3: not readable as YAML: not UTF-8"),
        (DISPATCHED, "owner: ", "owner: " + "[" * 100_000, "yaml:3: not readable as YAML: more than 20 levels"),
        (DISPATCHED, "owner: ", "owner: &a b\nx: *a #", "yaml:4: not readable as YAML: an alias, '*a'"),
        (
            DISPATCHED,
            "owner: ",
            "owner: 0x" + "f" * 9_000 + " #",
            "yaml:3: not readable as YAML: a number of more than",
        ),
        (DISPATCHED, "owner: ", "owner: " + "x" * 20_000 + " #", "yaml:3: not readable as YAML: a value of more than"),
        (DISPATCHED, "BACKWARD", "BACKWARDS", "yaml:5: 'compatibility' is 'BACKWARDS'"),
        (SCHEMA, "{", "[" * 100_000, "1.avsc: too many brackets within each other: mend or restore it"),
        (SCHEMA, "{", "\udcff{", "1.avsc: not UTF-8"),
        (
            DISPATCHED,
            "topic: parcels.dispatched.v1",
            "topic: parcels_dispatched.v1",
            "yaml:1: 'topic' is 'parcels_dispatched.v1'",
        ),
        (DISPATCHED, "topic: parcels.dispatched.v1", "topic: parcels.left.v1", "another name than 'parcels.left.v1'"),
        (
            DISPATCHED,
            "v1/1.avsc",
            "v1/2.avsc",
            "yaml:4: schema file contracts/schemas/parcels.dispatched.v1/2.avsc is missing",
        ),
        (
            DISPATCHED,
            "parcels.dispatched.v1/1",
            "parcels.delivered.v1/1",
            "yaml:4: 'parcels.delivered.v1/1.avsc' is not in the",
        ),
        (DISPATCHED, "key: parcel_id", "key: parcelid", "yaml:6: the schema has no field 'parcelid'"),
        (DISPATCHED, "key: parcel_id", "key: parcel_number", "yaml:6: 'parcel_number' is not a required text"),
        (DISPATCHED, "occurred_at: dispatched_at", "occurred_at: posted_on", "yaml:7: 'posted_on' is no instant"),
        (
            DISPATCHED,
            "derived_from: none",
            "derived_from: {topic: parcels.weighed.v1, records: each}",
            "yaml:8: there is no topic 'parcels.weighed.v1'",
        ),
        (
            DISPATCHED,
            "derived_from: none",
            "derived_from: {topic: parcels.dispatched.v1, records: each}",
            "yaml:8: 'parcels.dispatched.v1' is derived",
        ),
        (
            DISPATCHED,
            "derived_from: none",
            "derived_from: {topic: parcels.dispatched.enriched.v1, records: each}",
            "yaml:8: 'parcels.dispatched.enriched.v1' is derived itself",
        ),
        (
            DISPATCHED,
            "[origin]",
            "[dispatched_at]",
            "yaml:22: 'dispatched_at' is of type timestamp-millis, which makes no folder",
        ),
        (DISPATCHED, "[origin]", "[day]", "yaml:22: the schema has no field 'day'"),
        (DISPATCHED, "personal_data: []", "personal_data: [driver]", "yaml:13: the schema has no field 'driver'"),
        (
            DISPATCHED,
            "[dispatches]",
            "[dispatch]",
            "yaml:11: there is no deployable 'dispatch': use one of alerting, audit, ",
        ),
        (
            DISPATCHED,
            "slowest_lines, losses_by_origin, lake]",
            "slowest_lines, losses_by_origin]",
            "yaml:12: consumers and lake section disagree",
        ),
        (DISPATCHED, "derived_from: none", "derived_from: no", "yaml:8: 'derived_from' is False: input should be"),
        (DISPATCHED, "table: parcels_dispatched", "table: alerts_raised", "lake table 'alerts_raised' belongs to"),
        (
            SCHEMA,
            '"ParcelDispatched"',
            '"ParcelDelivered"',
            "type name 'ParcelDelivered' belongs to parcels.delivered.v1",
        ),
        (SCHEMA, '"ParcelDispatched"', '"None"', "the type None is to be a class of Python: name it like Order"),
        (SCHEMA, '"name": "courier"', '"name" "courier"', "1.avsc:13: not readable as JSON"),
        (
            SCHEMA,
            '"type": "string"',
            '"type": "text"',
            "1.avsc:9: not an Avro schema: unknown type 'text': write one of boolean,",
        ),
        (SCHEMA, "Parcel number of the courier, without unit.", "", "field parcel_number has no doc"),
        (SCHEMA, ", in grams", "", "the doc of weight_grams names no unit"),
        (
            SCHEMA,
            '"dispatched_at"',
            '"dispatch"',
            "field dispatch is of type timestamp-millis: instants, and only they",
        ),
        (
            "dimensions/vans.yaml",
            "key: [van_id]",
            "key: [plate]",
            "vans.yaml:7: there is no column 'plate'",
        ),
        ("dimensions/vans.yaml", "key: [van_id]", "key: [built_year]", "key column 'built_year' is nullable"),
        (
            "dimensions/vans.yaml",
            "key: [van_id]",
            "key: [van_id]\nvalid: {from: bilt_year, until: x}",
            "yaml:8: there is no column 'bilt_year': did you mean built_year?",
        ),
        (
            "dimensions/vans.yaml",
            "key: [van_id]",
            "key: [van_id]\nvalid: {from: van_id, until: seats}",
            "yaml:8: column 'seats' is of type int: use a column of type timestamp or date",
        ),
        (
            "dimensions/vans.yaml",
            "type: string",
            "type: timestamp",
            "yaml:7: key column 'van_id' is of type timestamp, by which nothing can be looked up: use a text",
        ),
        (
            "dimensions/vans.yaml",
            "columns:\n",
            (
                "valid: {from: a, until: b}\ncolumns:\n"
                "  - {name: a, source: a, type: date, nullable: false, description: From when on.}\n"
                "  - {name: b, source: b, type: timestamp, nullable: true, description: Until when.}\n"
            ),
            "yaml:10: one of from and until is a timestamp, the other a date: use one type",
        ),
        (
            "dimensions/vans.yaml",
            "key: [van_id]",
            "key: [van_id]\nvalid: {until: seats}",
            "yaml:8: key 'valid.from' is missing: add 'from:'",
        ),
        (
            "dimensions/vans.yaml",
            "key: [van_id]",
            "key: [model, van_id, model]",
            "vans.yaml:7: key column 'model' stands 2 times",
        ),
        ("dimensions/vans.yaml", "name: model", "name: seats", "vans.yaml:10: name 'seats' stands 2 times"),
        ("dimensions/vans.yaml", "vans.csv", "couriers.csv", "source 'couriers.csv' belongs to couriers: choose"),
        (
            "dimensions/vans.yaml",
            "location: dimensions/vans",
            "location: dimensions/couriers",
            "vans.yaml: location 'dimensions/couriers' belongs to couriers: choose another",
        ),
        (
            "dimensions/vans.yaml",
            "location: dimensions/vans",
            "location: tables/parcels_dispatched",
            "vans.yaml:6: 'location' is 'tables/parcels_dispatched': string should match pattern '^dimensions/",
        ),
        (
            "dimensions/vans.yaml",
            "location: dimensions/vans",
            "location: dimensions/vans/_delta_log",
            "vans.yaml:6: 'location' is 'dimensions/vans/_delta_log': string should match",
        ),
        (
            "dimensions/vans.yaml",
            "deliveries_enriched, repair]",
            "spark]",
            "vans.yaml:4: there is no deployable 'spark'",
        ),
        ("dimensions/vans.yaml", "nullable: true", "nulable: true", "unknown key 'columns.1.nulable': did you mean"),
        (
            "examples/parcels.dispatched.v1/left_late.json",
            '"UA",',
            '"UA", "gate": "B2",',
            "left_late.json: unknown: gate",
        ),
        ("examples/parcels.dispatched.v1/left_late.json", "1400", '"far"', "left_late.json: "),
        (
            "examples/parcels.dispatched.v1/left_late.json",
            "T10:17:00Z",
            "T10:17:00",
            "dispatched_at is '2013-01-01T10:17:00'",
        ),
        ("examples/parcels.dispatched.v1/left_late.json", "{", "[", "left_late.json: not readable as JSON"),
        ("examples/parcels.dispatched.v1/left_late.json", '"UA"', "[" * 100_000, "left_late.json: too many brackets"),
        ("examples/alerts.raised.v1/store_too_warm.json", '"critical"', '"grave"', "store_too_warm.json: "),
        ("examples/depots.observed.v1/storm.json", '"0"', '"0.125"', "storm.json: "),
    ],
)
def test_a_broken_rule_is_told_with_file_and_cure(
    files: ContractFiles, file: str, old: str, new: str, expected: str
) -> None:
    files.replace(file, old, new)
    problems = files.problems()
    assert any(expected in problem for problem in problems), problems
    assert all(problem.startswith("contracts/") for problem in problems)


BAYS = """dimension: bays
description: Where readings are taken.
owner: depot-desk
consumers: []
topic: depots.observed.v1
location: dimensions/bays
key: [station]
columns:
  - {name: station, source: station, type: string, nullable: false, description: Code of the depot.}
  - {name: visibility, source: visibility_miles, type: double, nullable: false, description: "Visibility, in miles."}
  - {name: wind, source: wind_direction_degrees, type: int, nullable: true, description: "Wind, in degrees."}
"""
OBSERVED = "topics/depots.observed.v1.yaml"


def with_bays(files: ContractFiles) -> None:
    """A dimension that is made of the readings, in a sound way."""
    (files.root / "dimensions" / "bays.yaml").write_text(BAYS, encoding="utf-8")
    files.replace(OBSERVED, "consumers: [", "compacted: true\nconsumers: [dimensions, ")


@pytest.mark.parametrize(
    ("file", "old", "new", "expected"),
    [
        (
            "dimensions/bays.yaml",
            "depots.observed.v1",
            "depots.obsrved.v1",
            "bays.yaml:5: there is no topic depots.obsrved",
        ),
        (
            "dimensions/bays.yaml",
            "topic: depots.observed.v1\n",
            "",
            "bays.yaml: it has neither source nor topic: name the",
        ),
        (
            "dimensions/bays.yaml",
            "location",
            "source: a.csv\nlocation",
            "bays.yaml: it has both source and topic: name the",
        ),
        ("dimensions/bays.yaml", "location", "null_values: []\nlocation", "and has null_values, which is about files"),
        (
            "dimensions/bays.yaml",
            "columns",
            "valid: {from: a, until: b}\ncolumns",
            "and has valid, which is about files",
        ),
        ("dimensions/bays.yaml", "location", "every_seconds: 0.5\nlocation", "'every_seconds' is 0.5: input should be"),
        ("dimensions/vans.yaml", "max_shrink_percent: 10\n", "", "vans.yaml: key 'max_shrink_percent' is missing: add"),
        ("dimensions/vans.yaml", "location", "every_seconds: 5\nlocation", "has every_seconds, which is about topics"),
        (
            "dimensions/bays.yaml",
            "source: station",
            "source: staton",
            "bays.yaml:9: depots.observed.v1 has no field 'staton': did",
        ),
        (
            "dimensions/bays.yaml",
            "type: double",
            "type: int",
            "bays.yaml:10: 'visibility_miles' of depots.observed.v1 is of type double, and column 'visibility' is int: give",
        ),
        (
            "dimensions/bays.yaml",
            "nullable: true",
            "nullable: false",
            "bays.yaml:11: 'wind_direction_degrees' of depots.observed.v1 may be null, and column 'wind' may not: set",
        ),
        (
            OBSERVED,
            "compacted: true\n",
            "",
            "bays is made of it, and it is not compacted: a key without a new record for 30",
        ),
        (
            OBSERVED,
            "[dimensions, ",
            "[",
            "yaml:13: bays is made of it, and dimensions is not among them: add dimensions",
        ),
        (OBSERVED, "key: station", "key: none", "yaml:12: its records have no key of which the newest could be kept"),
        (
            DISPATCHED,
            "consumers: [",
            "consumers: [dimensions, ",
            "no dimension has 'topic: parcels.dispatched.v1': take",
        ),
        (DISPATCHED, "producers:", "compacted: true\nproducers:", "reads it, and it is compacted: nobody could tell"),
        (
            "topics/parcels.dispatched.enriched.v1.yaml",
            "producers:",
            "compacted: true\nproducers:",
            "what a pipeline makes of records is compared with them one by one, and brokers remove some: leave it out",
        ),
    ],
)
def test_a_broken_rule_of_a_dimension_that_is_made_of_a_topic_is_told(
    files: ContractFiles, file: str, old: str, new: str, expected: str
) -> None:
    before = files.problems()
    with_bays(files)
    assert files.problems() == before
    files.replace(file, old, new)
    problems = files.problems()
    assert any(expected in problem for problem in problems), problems


NEWEST = "lake:\n  table: depots_observed\n  format: delta\n  partition_by: []\n  history_days: 7\n  rows: newest"


def with_newest(files: ContractFiles) -> None:
    """A table with the newest reading of each depot, in a sound way."""
    files.replace(OBSERVED, "lake: none", NEWEST)
    files.replace(OBSERVED, "consumers: [", "compacted: true\nconsumers: [lake, ")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            "key: station",
            "key: none",
            "yaml:25: its records have no key of which the table could have the newest: name a field as key, or",
        ),
        (
            "compacted: true\n",
            "",
            "yaml:24: brokers delete its records after 30 days, so a table that is filled anew would lack keys: add",
        ),
        (
            "partition_by: []",
            "partition_by: [station]",
            "yaml:25: a table with the newest record of each key is one file, and has no",
        ),
        ("rows: newest", "rows: latest", "yaml:25: 'lake.rows' is 'latest'"),
    ],
)
def test_a_broken_rule_of_a_table_with_the_newest_record_of_each_key_is_told(
    files: ContractFiles, old: str, new: str, expected: str
) -> None:
    before = files.problems()
    with_newest(files)
    assert files.problems() == before
    files.replace(OBSERVED, old, new)
    problems = files.problems()
    assert any(expected in problem for problem in problems), problems


def test_a_field_that_is_named_as_the_column_of_the_key_is_told_where_a_table_has_one(files: ContractFiles) -> None:
    path = files.root / "schemas/depots.observed.v1/1.avsc"
    schema = json.loads(path.read_text(encoding="utf-8"))
    schema["fields"].append({"name": "record_key", "type": ["null", "string"], "default": None, "doc": "A text."})
    path.write_text(json.dumps(schema), encoding="utf-8")
    assert not any("column 'record_key'" in each for each in files.problems())
    with_newest(files)
    assert any("the table has a column 'record_key' of its own" in each for each in files.problems())


def test_an_event_that_is_not_in_the_past_tense_is_told(files: ContractFiles) -> None:
    path = files.root / DISPATCHED
    path.rename(path.with_name("parcels.dispatch.v1.yaml"))
    files.replace("topics/parcels.dispatch.v1.yaml", "topic: parcels.dispatched.v1", "topic: parcels.dispatch.v1")
    assert any("'dispatch' is not in the past tense" in problem for problem in files.problems())


def test_letters_of_a_topic_that_alerting_reads_are_kept_as_long_as_its_records(files: ContractFiles) -> None:
    # Both the topic's own and its letters'.
    path = files.root / "topics/parcels.lost.v1.yaml"
    path.write_text(path.read_text().replace("retention_days: 30", "retention_days: 60"), encoding="utf-8")
    (problem,) = [each for each in files.problems() if "alerts.raised" in each]
    assert (
        "kept for 30 days, and records for 60: that of an old record would be deleted at once: set it to 60" in problem
    )


def test_the_ledger_is_kept_as_long_as_any_dead_letter(files: ContractFiles) -> None:
    files.replace(DISPATCHED, "dead_letters:\n  retention_days: 30", "dead_letters:\n  retention_days: 4000")
    (problem,) = [each for each in files.problems() if "kept" in each]
    assert problem == (
        "contracts/topics/deadletters.settled.v1.yaml:10: entries are kept for 3650 days, and dead letters for 4000: one that was sent back could be "
        "sent back again: set it to 4000"
    )


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"revision": "long"}, "'revision' is not an int, by which the table counts corrections"),
        ({"coordinate": "int"}, "the table has a column 'coordinate' with the raw record's place"),
        ({"raw_offset": "long"}, "the table has a column 'raw_offset' of its own"),
        ({"record_offset": "long"}, "the table has a column 'record_offset' of its own"),
        ({"revision": "int", "coordinate": "string"}, None),
    ],
)
def test_a_field_that_the_table_takes_for_its_own_column_is_told(
    files: ContractFiles, fields: dict[str, str], told: str | None
) -> None:
    path = files.root / SCHEMA
    schema = json.loads(path.read_text(encoding="utf-8"))
    schema["fields"] += [{"name": name, "type": kind, "doc": "A number, or a text."} for name, kind in fields.items()]
    path.write_text(json.dumps(schema), encoding="utf-8")
    found = [each for each in files.problems() if "table" in each]
    assert found == [] if told is None else (len(found) == 1 and told in found[0] and "another name" in found[0])


def test_all_problems_are_told_at_once(files: ContractFiles) -> None:
    files.replace(DISPATCHED, "owner:", "ownr:")
    files.replace("topics/alerts.raised.v1.yaml", "key: rule", "key: rool")
    files.replace("dimensions/depots.yaml", "key: [depot]", "key: [code]")
    text = "\n".join(files.problems())
    assert "'ownr'" in text
    assert "'rool'" in text
    assert "'code'" in text


def test_a_file_that_cannot_be_read_makes_no_orphans(files: ContractFiles) -> None:
    files.replace(DISPATCHED, "owner:", "ownr:")
    assert [problem for problem in files.problems() if "no topic uses" in problem] == []


def test_a_topic_without_example_is_told(files: ContractFiles) -> None:
    release(load_catalog(files.root))
    shutil.rmtree(files.root / "examples/parcels.delivered.v1")
    assert files.problems() == [
        "contracts/examples/parcels.delivered.v1: there is no example: add one event as a .json file"
    ]


def test_files_that_no_topic_uses_are_told(files: ContractFiles) -> None:
    release(load_catalog(files.root))
    files.write_schema("parcels.delivered.v1", 2, files.schema("parcels.delivered.v1"))
    (files.root / "examples/notes.txt").mkdir()
    (files.root / "examples/notes.txt/x.json").write_text("{}", encoding="utf-8")
    (files.root / "schemas/parcels.delivered.v1/\u00b2.avsc").write_text("{}", encoding="utf-8")
    assert [problem.partition(":")[0] for problem in files.problems()] == [
        "contracts/examples/notes.txt/x.json",
        "contracts/schemas/parcels.delivered.v1/2.avsc",
        "contracts/schemas/parcels.delivered.v1/\u00b2.avsc",
    ]


def test_a_released_schema_must_not_change_or_vanish(files: ContractFiles) -> None:
    release(load_catalog(files.root))
    assert files.problems() == []
    files.replace(SCHEMA, "A parcel left its depot.", "A parcel left.")
    (files.root / "schemas/parcels.delivered.v1/1.avsc").unlink()
    text = "\n".join(files.problems())
    assert f"contracts/{SCHEMA}: released, but the file has changed: restore it" in text
    assert "contracts/schemas/parcels.delivered.v1/1.avsc: released, but the file is gone: restore it" in text


def test_a_release_never_rewrites_what_was_released(files: ContractFiles) -> None:
    catalog = load_catalog(files.root)
    first = release(catalog)
    assert {path.partition("/")[0] for path in first} == set(catalog.topics)
    files.replace(SCHEMA, "A parcel left its depot.", "A parcel left.")
    assert release(catalog) == []
    assert any("has changed" in problem for problem in files.problems())


def test_a_release_freezes_the_topics_that_are_named_also_when_a_newer_version_is_there(files: ContractFiles) -> None:
    _second_version(files, default=None)
    names = ["parcels.dispatched.v1"]
    assert release(load_catalog(files.root), names) == ["parcels.dispatched.v1/1.avsc", "parcels.dispatched.v1/2.avsc"]
    left = [problem for problem in files.problems() if "was not released" in problem]
    assert not any("parcels.dispatched.v1/" in problem for problem in left)
    with pytest.raises(ContractError, match="no contract for topic 'mine'"):
        release(load_catalog(files.root), ["mine"])


def test_a_version_with_a_successor_must_be_released(files: ContractFiles) -> None:
    _second_version(files, default=None)
    assert any("1.avsc: has a newer version, but was not released" in problem for problem in files.problems())


def test_a_new_version_must_be_compatible_with_its_predecessor(files: ContractFiles) -> None:
    release(load_catalog(files.root))
    _second_version(files, default=None)
    for example in (files.root / "examples/parcels.dispatched.v1").glob("*.json"):
        example.write_text(example.read_text(encoding="utf-8").replace("{", '{"gate": "B2",', 1), encoding="utf-8")
    assert files.problems() == []
    _second_version(files)
    (problem,) = files.problems()
    assert problem == (
        "contracts/schemas/parcels.dispatched.v1/2.avsc: field gate: MISSING_DEFAULT: the other version has no such field, "
        "and there is no default; version 2 cannot read records of version 1: "
        "make it BACKWARD-compatible, or start a new major version of the topic"
    )


def _second_version(files: ContractFiles, **default: str | None) -> None:
    schema = files.schema("parcels.dispatched.v1")
    schema["fields"].append({"name": "gate", "type": ["null", "string"], "doc": "Gate of dispatch.", **default})
    files.write_schema("parcels.dispatched.v1", 2, schema)
    if "v1/2.avsc" not in (files.root / DISPATCHED).read_text(encoding="utf-8"):
        files.replace(DISPATCHED, "v1/1.avsc", "v1/2.avsc")


def test_the_command_says_what_it_found() -> None:
    catalog = load_catalog()
    result = CliRunner().invoke(contracts_app, ["check"])
    expected = f"{len(catalog.topics)} topics and {len(catalog.dimensions)} dimensions keep every rule\n"
    assert (result.exit_code, result.output) == (0, expected)

from __future__ import annotations

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

DEPARTED = "topics/flights.departed.v1.yaml"
SCHEMA = "schemas/flights.departed.v1/1.avsc"


def test_the_contracts_keep_every_rule_and_the_check_is_fast() -> None:
    begin = time.process_time()
    assert [str(problem) for problem in check()] == []
    assert time.process_time() - begin < 2.0


@pytest.mark.parametrize(
    ("file", "old", "new", "expected"),
    [
        (DEPARTED, "owner:", "ownr:", "yaml:3: unknown key 'ownr': did you mean 'owner'?"),
        (DEPARTED, "owner:", "ownr:", "yaml:1: key 'owner' is missing: add 'owner:'"),
        (DEPARTED, "  format: delta", "  fromat: delta", "yaml:21: unknown key 'lake.fromat': did you mean 'format'?"),
        (DEPARTED, "partitions: 2", "partitions: 2\npartitions: 3", "yaml:10: not readable as YAML: key 'partitions'"),
        (DEPARTED, "description: E", "description: 'E", "not readable as YAML"),
        (DEPARTED, "owner: ", "owner: 2013-02-30 #", "yaml:3: not readable as YAML: a value that is no timestamp"),
        (DEPARTED, "owner: ", "owner: !!int x #", "yaml:3: not readable as YAML: a value that is no int"),
        (DEPARTED, "owner: ", "owner: !!bool x #", "yaml:3: not readable as YAML: a value that is no bool"),
        (DEPARTED, "owner: ", "owner: {{x}} #", "yaml:3: not readable as YAML: found unhashable key"),
        (DEPARTED, "owner: ", "owner: é\x01", "yaml:3: not readable as YAML: control characters are not allowed"),
        (DEPARTED, "owner: ", "owner: \udcff", "yaml:3: not readable as YAML: not UTF-8"),
        (DEPARTED, "owner: ", "owner: " + "[" * 100_000, "yaml:3: not readable as YAML: more than 20 levels"),
        (DEPARTED, "owner: ", "owner: &a b\nx: *a #", "yaml:4: not readable as YAML: an alias, '*a'"),
        (DEPARTED, "owner: ", "owner: 0x" + "f" * 9_000 + " #", "yaml:3: not readable as YAML: a number of more than"),
        (DEPARTED, "owner: ", "owner: " + "x" * 20_000 + " #", "yaml:3: not readable as YAML: a value of more than"),
        (DEPARTED, "BACKWARD", "BACKWARDS", "yaml:5: 'compatibility' is 'BACKWARDS'"),
        (SCHEMA, "{", "[" * 100_000, "1.avsc: too many brackets within each other: mend or restore it"),
        (SCHEMA, "{", "\udcff{", "1.avsc: not UTF-8"),
        (
            DEPARTED,
            "topic: flights.departed.v1",
            "topic: flights_departed.v1",
            "yaml:1: 'topic' is 'flights_departed.v1'",
        ),
        (DEPARTED, "topic: flights.departed.v1", "topic: flights.left.v1", "another name than 'flights.left.v1'"),
        (
            DEPARTED,
            "v1/1.avsc",
            "v1/2.avsc",
            "yaml:4: schema file contracts/schemas/flights.departed.v1/2.avsc is missing",
        ),
        (
            DEPARTED,
            "flights.departed.v1/1",
            "flights.arrived.v1/1",
            "yaml:4: 'flights.arrived.v1/1.avsc' is not in the",
        ),
        (DEPARTED, "key: flight_id", "key: flightid", "yaml:6: the schema has no field 'flightid'"),
        (DEPARTED, "key: flight_id", "key: flight_number", "yaml:6: 'flight_number' is not a required text"),
        (DEPARTED, "occurred_at: departed_at", "occurred_at: flight_date", "yaml:7: 'flight_date' is no instant"),
        (
            DEPARTED,
            "derived_from: none",
            "derived_from: {topic: flights.taxied.v1, records: each}",
            "yaml:8: there is no topic 'flights.taxied.v1'",
        ),
        (
            DEPARTED,
            "derived_from: none",
            "derived_from: {topic: flights.departed.v1, records: each}",
            "yaml:8: 'flights.departed.v1' is derived",
        ),
        (
            DEPARTED,
            "derived_from: none",
            "derived_from: {topic: flights.departed.enriched.v1, records: each}",
            "yaml:8: 'flights.departed.enriched.v1' is derived itself",
        ),
        (
            DEPARTED,
            "[origin]",
            "[departed_at]",
            "yaml:22: 'departed_at' is of type timestamp-millis, which makes no folder",
        ),
        (DEPARTED, "[origin]", "[day]", "yaml:22: the schema has no field 'day'"),
        (DEPARTED, "personal_data: []", "personal_data: [pilot]", "yaml:13: the schema has no field 'pilot'"),
        (
            DEPARTED,
            "[departures]",
            "[departure]",
            "yaml:11: there is no deployable 'departure': use one of airports_served, alerting, ",
        ),
        (DEPARTED, "departures, lake]", "departures]", "yaml:12: consumers and lake section disagree"),
        (DEPARTED, "derived_from: none", "derived_from: no", "yaml:8: 'derived_from' is False: input should be"),
        (DEPARTED, "table: flights_departed", "table: alerts_raised", "lake table 'alerts_raised' belongs to"),
        (SCHEMA, '"FlightDeparted"', '"FlightArrived"', "type name 'FlightArrived' belongs to flights.arrived.v1"),
        (SCHEMA, '"FlightDeparted"', '"None"', "the type None is to be a class of Python: name it like Order"),
        (SCHEMA, '"name": "carrier"', '"name" "carrier"', "1.avsc:13: not readable as JSON"),
        (SCHEMA, '"type": "string"', '"type": "text"', "1.avsc: not an Avro schema"),
        (SCHEMA, "Flight number of the carrier, without unit.", "", "field flight_number has no doc"),
        (SCHEMA, ", in statute miles", "", "the doc of distance_miles names no unit"),
        (
            SCHEMA,
            '"departed_at"',
            '"departure"',
            "field departure is of type timestamp-millis: instants, and only they",
        ),
        (
            "dimensions/planes.yaml",
            "key: [tail_number]",
            "key: [tailnum]",
            "planes.yaml:7: there is no column 'tailnum'",
        ),
        ("dimensions/planes.yaml", "key: [tail_number]", "key: [built_year]", "key column 'built_year' is nullable"),
        (
            "dimensions/planes.yaml",
            "key: [tail_number]",
            "key: [model, tail_number, model]",
            "planes.yaml:7: key column 'model' stands 2 times",
        ),
        ("dimensions/planes.yaml", "name: model", "name: seats", "planes.yaml:10: name 'seats' stands 2 times"),
        ("dimensions/planes.yaml", "planes.csv", "airlines.csv", "source 'airlines.csv' belongs to airlines: choose"),
        (
            "dimensions/planes.yaml",
            "location: dimensions/planes",
            "location: dimensions/airlines",
            "planes.yaml: location 'dimensions/airlines' belongs to airlines: choose another",
        ),
        (
            "dimensions/planes.yaml",
            "location: dimensions/planes",
            "location: tables/flights_departed",
            "planes.yaml:6: 'location' is 'tables/flights_departed': string should match pattern '^dimensions/",
        ),
        (
            "dimensions/planes.yaml",
            "location: dimensions/planes",
            "location: dimensions/planes/_delta_log",
            "planes.yaml:6: 'location' is 'dimensions/planes/_delta_log': string should match",
        ),
        (
            "dimensions/planes.yaml",
            "arrivals_enriched, repair]",
            "spark]",
            "planes.yaml:4: there is no deployable 'spark'",
        ),
        ("dimensions/planes.yaml", "nullable: true", "nulable: true", "unknown key 'columns.1.nulable': did you mean"),
        (
            "examples/flights.departed.v1/left_late.json",
            '"UA",',
            '"UA", "gate": "B2",',
            "left_late.json: unknown: gate",
        ),
        ("examples/flights.departed.v1/left_late.json", "1400", '"far"', "left_late.json: "),
        (
            "examples/flights.departed.v1/left_late.json",
            "T10:17:00Z",
            "T10:17:00",
            "departed_at is '2013-01-01T10:17:00'",
        ),
        ("examples/flights.departed.v1/left_late.json", "{", "[", "left_late.json: not readable as JSON"),
        ("examples/flights.departed.v1/left_late.json", '"UA"', "[" * 100_000, "left_late.json: too many brackets"),
        ("examples/alerts.raised.v1/store_too_warm.json", '"critical"', '"grave"', "store_too_warm.json: "),
        ("examples/weather.observed.v1/storm.json", '"0"', '"0.125"', "storm.json: "),
    ],
)
def test_a_broken_rule_is_told_with_file_and_cure(
    files: ContractFiles, file: str, old: str, new: str, expected: str
) -> None:
    files.replace(file, old, new)
    problems = files.problems()
    assert any(expected in problem for problem in problems), problems
    assert all(problem.startswith("contracts/") for problem in problems)


def test_an_event_that_is_not_in_the_past_tense_is_told(files: ContractFiles) -> None:
    path = files.root / DEPARTED
    path.rename(path.with_name("flights.departure.v1.yaml"))
    files.replace("topics/flights.departure.v1.yaml", "topic: flights.departed.v1", "topic: flights.departure.v1")
    assert any("'departure' is not in the past tense" in problem for problem in files.problems())


def test_all_problems_are_told_at_once(files: ContractFiles) -> None:
    files.replace(DEPARTED, "owner:", "ownr:")
    files.replace("topics/alerts.raised.v1.yaml", "key: rule", "key: rool")
    files.replace("dimensions/airports.yaml", "key: [airport]", "key: [faa]")
    text = "\n".join(files.problems())
    assert "'ownr'" in text
    assert "'rool'" in text
    assert "'faa'" in text


def test_a_file_that_cannot_be_read_makes_no_orphans(files: ContractFiles) -> None:
    files.replace(DEPARTED, "owner:", "ownr:")
    assert [problem for problem in files.problems() if "no topic uses" in problem] == []


def test_a_topic_without_example_is_told(files: ContractFiles) -> None:
    release(load_catalog(files.root))
    shutil.rmtree(files.root / "examples/flights.arrived.v1")
    assert files.problems() == [
        "contracts/examples/flights.arrived.v1: there is no example: add one event as a .json file"
    ]


def test_files_that_no_topic_uses_are_told(files: ContractFiles) -> None:
    release(load_catalog(files.root))
    files.write_schema("flights.arrived.v1", 2, files.schema("flights.arrived.v1"))
    (files.root / "examples/notes.txt").mkdir()
    (files.root / "examples/notes.txt/x.json").write_text("{}", encoding="utf-8")
    (files.root / "schemas/flights.arrived.v1/\u00b2.avsc").write_text("{}", encoding="utf-8")
    assert [problem.partition(":")[0] for problem in files.problems()] == [
        "contracts/examples/notes.txt/x.json",
        "contracts/schemas/flights.arrived.v1/2.avsc",
        "contracts/schemas/flights.arrived.v1/\u00b2.avsc",
    ]


def test_a_released_schema_must_not_change_or_vanish(files: ContractFiles) -> None:
    release(load_catalog(files.root))
    assert files.problems() == []
    files.replace(SCHEMA, "A flight left its gate.", "A flight left.")
    (files.root / "schemas/flights.arrived.v1/1.avsc").unlink()
    text = "\n".join(files.problems())
    assert f"contracts/{SCHEMA}: released, but the file has changed: restore it" in text
    assert "contracts/schemas/flights.arrived.v1/1.avsc: released, but the file is gone: restore it" in text


def test_a_release_never_rewrites_what_was_released(files: ContractFiles) -> None:
    catalog = load_catalog(files.root)
    first = release(catalog)
    assert {path.partition("/")[0] for path in first} == set(catalog.topics)
    files.replace(SCHEMA, "A flight left its gate.", "A flight left.")
    assert release(catalog) == []
    assert any("has changed" in problem for problem in files.problems())


def test_a_release_freezes_the_topics_that_are_named_also_when_a_newer_version_is_there(files: ContractFiles) -> None:
    _second_version(files, default=None)
    names = ["flights.departed.v1"]
    assert release(load_catalog(files.root), names) == ["flights.departed.v1/1.avsc", "flights.departed.v1/2.avsc"]
    left = [problem for problem in files.problems() if "was not released" in problem]
    assert not any("flights.departed.v1/" in problem for problem in left)
    with pytest.raises(ContractError, match="no contract for topic 'mine'"):
        release(load_catalog(files.root), ["mine"])


def test_a_version_with_a_successor_must_be_released(files: ContractFiles) -> None:
    _second_version(files, default=None)
    assert any("1.avsc: has a newer version, but was not released" in problem for problem in files.problems())


def test_a_new_version_must_be_compatible_with_its_predecessor(files: ContractFiles) -> None:
    release(load_catalog(files.root))
    _second_version(files, default=None)
    for example in (files.root / "examples/flights.departed.v1").glob("*.json"):
        example.write_text(example.read_text(encoding="utf-8").replace("{", '{"gate": "B2",', 1), encoding="utf-8")
    assert files.problems() == []
    _second_version(files)
    (problem,) = files.problems()
    assert problem == (
        "contracts/schemas/flights.departed.v1/2.avsc: field gate: MISSING_DEFAULT: the other version has no such field, "
        "and there is no default; version 2 cannot read records of version 1: "
        "make it BACKWARD-compatible, or start a new major version of the topic"
    )


def _second_version(files: ContractFiles, **default: str | None) -> None:
    schema = files.schema("flights.departed.v1")
    schema["fields"].append({"name": "gate", "type": ["null", "string"], "doc": "Gate of departure.", **default})
    files.write_schema("flights.departed.v1", 2, schema)
    if "v1/2.avsc" not in (files.root / DEPARTED).read_text(encoding="utf-8"):
        files.replace(DEPARTED, "v1/1.avsc", "v1/2.avsc")


def test_the_command_says_what_it_found() -> None:
    catalog = load_catalog()
    result = CliRunner().invoke(contracts_app, ["check"])
    expected = f"{len(catalog.topics)} topics and {len(catalog.dimensions)} dimensions keep every rule\n"
    assert (result.exit_code, result.output) == (0, expected)

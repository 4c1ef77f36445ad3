"""What a change of the contracts means: each kind of edit, beside the contracts as they are."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from contracts.checks.changes import Change, Weight, changes
from contracts.definitions.catalog import load_catalog
from tests import sample

TOPIC = "parcels.dispatched.v1"
READERS = (
    "dispatches_enriched",
    "heavy_parcels",
    "dispatches_by_punctuality",
    "delays_by_origin",
    "final_delays_by_origin",
    "rounds_of_vans",
    "parcel_trips",
    "dispatches_once",
    "late_parcels_of_vans",
    "slowest_lines",
    "losses_by_origin",
    "lake",
)
ENRICHED = ("dispatches_enriched", "deliveries_enriched", "repair")

Edit = Callable[[Path], object]


def of_topic(**keys: Any) -> Edit:
    return lambda root: edited(root / "topics" / f"{TOPIC}.yaml", lambda contract: contract | keys)


def of_dimension(**keys: Any) -> Edit:
    return lambda root: edited(root / "dimensions" / "depots.yaml", lambda contract: contract | keys)


def of_columns(change: Callable[[list[dict[str, Any]]], object]) -> Edit:
    def edit(contract: dict[str, Any]) -> dict[str, Any]:
        change(contract["columns"])
        return contract

    return lambda root: edited(root / "dimensions" / "depots.yaml", edit)


def of_field(field_name: str, **parts: Any) -> Edit:
    def edit(fields: list[dict[str, Any]]) -> None:
        field = next(field for field in fields if field["name"] == field_name)
        field |= parts

    return of_fields(edit)


def of_fields(change: Callable[[list[dict[str, Any]]], object]) -> Edit:
    def edit(root: Path) -> None:
        path = root / "schemas" / TOPIC / "1.avsc"
        schema = json.loads(path.read_text())
        change(schema["fields"])
        path.write_text(json.dumps(schema))

    return edit


def edited(path: Path, edit: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    path.write_text(yaml.safe_dump(edit(yaml.safe_load(path.read_text()))))


def gone(root: Path) -> None:
    (root / "topics" / f"{TOPIC}.yaml").unlink()


def added(root: Path) -> None:
    contract = yaml.safe_load((root / "topics" / f"{TOPIC}.yaml").read_text())
    name = "parcels.sorted.v1"
    contract |= {"topic": name, "schema": f"{name}/1.avsc", "consumers": []}
    (root / "topics" / f"{name}.yaml").write_text(yaml.safe_dump(contract))
    shutil.copytree(root / "schemas" / TOPIC, root / "schemas" / name)


NULLABLE = {"name": "gate", "type": ["null", "string"], "default": None, "doc": "The gate."}
LAKE = {"table": "parcels_dispatched", "format": "delta", "partition_by": ["origin"], "history_days": 7}
ONLY = "its schema: "


@pytest.mark.parametrize(
    ("edit", "expected"),
    [
        (lambda _: None, []),
        (gone, [("breaking", "the topic is gone", ("dispatches", *READERS))]),
        (added, [("new", "topic, 11 fields, 2 partitions", ("dispatches",))]),
        (of_topic(owner="tower"), [("changed", "owner: parcel-operations → tower", READERS)]),
        (of_topic(key="none"), [("breaking", "key: parcel_id → none: records of one key may come", READERS)]),
        (of_topic(occurred_at="due_at"), [("breaking", "the event time is another one", READERS)]),
        (of_topic(partitions=1), [("breaking", "2 → 1: a topic can't lose partitions", ("dispatches",))]),
        (of_topic(partitions=4), [("breaking", "2 → 4: records of one key may come to another", READERS)]),
        (
            of_topic(partitions=4, lake=LAKE | {"rows": "newest"}),
            [("breaking", "the table that is there does not fit", ("lake",))]
            + [("breaking", "2 → 4: records of one key may come to another", READERS)]
            + [("breaking", "2 → 4: of a key that moves the lake table has a row from each", ("lake",))],
        ),
        (of_topic(retention_days=7), [("breaking", "30 → 7: older records are deleted", READERS)]),
        (of_topic(retention_days=31), [("changed", "retention_days: 30 → 31", READERS)]),
        (of_topic(consumers=[*READERS, "alerting"]), [("new", "consumer alerting", ("alerting",))]),
        (of_topic(consumers=READERS[:-1]), [("changed", "lake is no consumer any more", ("lake",))]),
        (of_topic(producers=["dispatches", "dlq"]), [("new", "producer dlq", ("dlq",))]),
        (of_topic(lake=LAKE | {"history_days": 8}), [("changed", "lake: ", ("lake",))]),
        (of_topic(lake=LAKE | {"partition_by": []}), [("breaking", "the table that is there does not fit", ("lake",))]),
        (of_topic(lake=LAKE | {"rows": "newest"}), [("breaking", "the table that is there does not fit", ("lake",))]),
        (of_topic(lake=LAKE | {"rows": "each"}), []),
        (of_topic(lake="none"), [("breaking", "lake: ", ("lake",))]),
        (of_fields(lambda fields: fields.append(NULLABLE)), [("new", f"{ONLY}field gate: string?", READERS)]),
        (
            of_fields(lambda fields: fields.pop(0)),
            [("breaking", "readers by the schema before can't read new records: field parcel_id", READERS)]
            + [("changed", f"{ONLY}field parcel_id is gone", READERS)],
        ),
        (
            of_field("weight_grams", type="string"),
            [("breaking", "records that are there can't be read with it: field weight_grams", READERS)]
            + [("breaking", "by the schema before can't read new records: field weight_grams", READERS)]
            + [("changed", f"{ONLY}field weight_grams: int → string", READERS)],
        ),
        (
            of_field("weight_grams", type="long"),
            [("breaking", "by the schema before can't read new records: field weight_grams", READERS)]
            + [("changed", f"{ONLY}field weight_grams: int → long", READERS)],
        ),
        (
            of_field("weight_grams", name="grams", aliases=["weight_grams"]),
            [("breaking", "by the schema before can't read new records: field weight_grams", READERS)]
            + [("changed", f"{ONLY}field weight_grams is named grams", READERS)],
        ),
        (
            of_field("parcel_id", default="none"),
            [("changed", f"{ONLY}default values, symbols or types inside", READERS)],
        ),
        (
            of_topic(derived_from={"topic": "depots.observed.v1", "records": "each"}),
            [("breaking", "the events get other ids", READERS)],
        ),
        (of_field("origin", doc="From."), [("changed", f"{ONLY}field origin means: From.", READERS)]),
        (
            lambda root: (root / "dimensions" / "depots.yaml").unlink(),
            [("breaking", "the dimension is gone", ENRICHED)],
        ),
        (
            of_dimension(key=["name"]),
            [("breaking", "lookups find other rows, or none; those that run keep the version", ENRICHED)],
        ),
        (
            of_dimension(key=["depot", "name"]),
            [
                (
                    "breaking",
                    'key: ["depot"] → ["depot", "name"]: pipelines that look up in it do not start',
                    ENRICHED,
                )
            ],
        ),
        (of_dimension(location="dimensions/fields"), [("breaking", "versions that are there are not found", ENRICHED)]),
        (
            of_dimension(valid={"from": "name", "until": "timezone"}),
            [("breaking", "pipelines that look up in it do not start until as_of is there", ENRICHED)],
        ),
        (of_dimension(max_shrink_percent=20), [("changed", "max_shrink_percent: 10.0 → 20.0", ENRICHED)]),
        (of_columns(lambda columns: columns.pop()), [("breaking", "column timezone is gone", ENRICHED)]),
        (
            of_columns(lambda columns: columns[4].update(type="double")),
            [("breaking", "column altitude_feet: int → double: pipelines that run keep the version", ENRICHED)],
        ),
        (
            of_columns(lambda columns: columns[4].update(description="Feet.")),
            [("changed", "column altitude_feet: source, nullable or description", ENRICHED)],
        ),
        (
            of_columns(lambda columns: columns.append({**columns[-1], "name": "zone"})),
            [("new", "column zone: string", ENRICHED)],
        ),
    ],
)
def test_each_edit_is_told_for_whom_it_matters(
    edit: Edit, expected: list[tuple[Weight, str, tuple[str, ...]]], tmp_path: Path
) -> None:
    root = a_copy(tmp_path)
    edit(root)
    found = changes(sample.catalog(), load_catalog(root))
    assert len(found) == len(expected), found
    for weight, text, concerned in expected:
        assert any(fits(change, weight, text, concerned) for change in found), found


def fits(change: Change, weight: Weight, text: str, concerned: tuple[str, ...]) -> bool:
    return (change.weight, change.concerned) == (weight, concerned) and text in change.what


def test_records_of_every_earlier_version_count(tmp_path: Path) -> None:
    """A field that came with a default and loses it: records of the version before have it, those of the first have not."""
    versions = [[], [NULLABLE], [{key: value for key, value in NULLABLE.items() if key != "default"}]]
    states = []
    for number in (1, 2, 3):
        root = a_copy(tmp_path / str(number))
        schemas = root / "schemas" / TOPIC
        first = json.loads((schemas / "1.avsc").read_text())
        for version, fields in enumerate(versions[:number], start=1):
            text = json.dumps({**first, "fields": [*first["fields"], *fields]})
            (schemas / f"{version}.avsc").write_text(text)
        of_topic(schema=f"{TOPIC}/{number}.avsc")(root)
        states.append(load_catalog(root))
    (found,) = (change for change in changes(states[1], states[2]) if change.weight == "breaking")
    assert "schema 2 → 3: records that are there can't be read with it: field gate" in found.what


def test_of_a_filter_that_is_none_any_more_the_ids_stay(tmp_path: Path) -> None:
    root = a_copy(tmp_path)
    derived = {"topic": TOPIC, "records": "each"}
    edited(root / "topics" / "parcels.dispatched.heavy.v1.yaml", lambda contract: contract | {"derived_from": derived})
    (found,) = changes(sample.catalog(), load_catalog(root))
    assert found.weight == "changed"


@pytest.mark.parametrize(
    ("changed", "weight"), [({"named_by": ["courier"]}, "breaking"), ({"late_after_minutes": 60}, "changed")]
)
def test_other_fields_that_name_an_event_break_who_reads_distinct_ones(
    tmp_path: Path, changed: dict[str, object], weight: str
) -> None:
    root = a_copy(tmp_path)
    path = root / "topics" / "parcels.dispatched.once.v1.yaml"
    edited(path, lambda contract: contract | {"derived_from": contract["derived_from"] | changed})
    (found,) = changes(sample.catalog(), load_catalog(root))
    assert found.weight == weight
    assert found.what.endswith(": events are told apart by other fields") == (weight == "breaking")


@pytest.mark.parametrize(("places", "weight"), [(2, "breaking"), (4, "changed")])
def test_a_list_with_fewer_places_leaves_old_ones_behind(tmp_path: Path, places: int, weight: str) -> None:
    root = a_copy(tmp_path)
    path = root / "topics" / "parcels.dispatched.slowest.v1.yaml"
    edited(path, lambda contract: contract | {"derived_from": contract["derived_from"] | {"places": places}})
    (found,) = changes(sample.catalog(), load_catalog(root))
    assert found.weight == weight
    assert found.what.endswith(": the places beyond keep what they said last") == (weight == "breaking")


def a_copy(folder: Path) -> Path:
    """The contracts, to be edited; returns their folder."""
    root = folder / "contracts"
    for each in ("topics", "schemas", "dimensions"):
        shutil.copytree(sample.CONTRACTS / each, root / each)
    return root

"""Rows whose dimension row came late: repaired into the topic, taken in by the lake, and seen by its readers."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from contracts.records.codec import Codec
from contracts.servers.registry import Registry
from deploy.local.servers.stack import LocalStack
from spark.queries.lake import LakeTable
from spark.queries.repair import Progress, Repair, _as_spark_takes_it, _cut, defaults, repairable
from spark.runtime.errors import PositionsDisagree, RepairFailed
from spark.runtime.lifecycle import Lifecycle
from spark.runtime.settings import LakeSettings, SparkSettings
from spark.sinks.delta.latest import LATEST
from spark.sinks.kafka.emission import Emission, Outgoing, transactions
from spark.sinks.kafka.sink import Route
from spark.sinks.kafka.transaction import HELD_BYTES
from tests.raw_records import RawRecord, send_raw
from tests.sample.pipelines.dispatches_enriched import dispatches_enriched
from tests.spark.examples import DISPATCHED, ENRICHED, Topics, a_dispatch, body, framed, schema_with
from tests.spark.live_query import Dimensions, events, running
from tests.spark.lookups.test_enrich import ROWS

LATE_VAN = ("N0LATE", 2013, "Panel van", "GALATI", "G-320", 2, 180, "diesel")
LATE_DEPOT = ("BQN", "Birch Quay", 18.49, -67.13, 237, "America/Puerto_Rico")
DISPATCHED_AT = datetime(2013, 1, 1, 10, 17, tzinfo=UTC)


class Way:
    """Live and lake, brought up to date when asked to, over topics and dimensions of this test alone."""

    def __init__(
        self,
        spark: SparkSession,
        settings: SparkSettings,
        registry: Registry,
        topics: Topics,
        dimensions: Dimensions,
    ) -> None:
        self.spark, self.settings, self.registry = spark, settings, registry
        self.topics, self.dimensions = topics, dimensions

    def dispatch(self, parcel_id: str, partition: int = 0, **fields: Any) -> None:
        value = framed(self.topics.schema_ids[DISPATCHED], body(a_dispatch(parcel_id=parcel_id, **fields)))
        self.topics.send(value, partition=partition, key=parcel_id.encode(), headers=[("ce_id", parcel_id.encode())])

    def enrich(self) -> None:
        with running(self.spark, self.settings, self.registry, self.topics.catalog, self.dimensions) as query:
            query.processAllAvailable()
        self.land()

    def table(self, topic: str = ENRICHED) -> LakeTable:
        settings = self.settings.model_copy(update={"lake": LakeSettings(trigger_seconds=0)})
        contract, schema = self.topics.catalog.topic(topic), self.topics.catalog.schema(topic)
        return LakeTable(self.spark, settings, contract, schema, self.registry, Lifecycle())

    def land(self, topic: str = ENRICHED) -> None:
        table = self.table(topic)
        query = table.start()
        try:
            query.processAllAvailable()
        finally:
            query.stop()
            table.close()

    def repair(self) -> Repair:
        catalog = dataclasses.replace(self.topics.catalog, dimensions=self.dimensions.contracts)
        return Repair(self.spark, dispatches_enriched, self.settings, catalog, self.registry)

    def run(self, since: datetime | None = None) -> Progress:
        return self.repair().run(since, 0, lambda _: None)

    def query(self, statement: str) -> list[dict[str, Any]]:
        uri = self.table().path.replace("s3a://", "s3://")
        table = DeltaTable(uri, storage_options=self.settings.s3.delta_options())
        return list(pa.table(QueryBuilder().register("parcels", table).execute(statement)).to_pylist())


@pytest.fixture
def way(
    spark: SparkSession, settings: SparkSettings, registry: Registry, topics: Topics, dimensions: Dimensions
) -> Way:
    return Way(spark, settings, registry, topics, dimensions)


def test_rows_whose_dimension_row_came_late_get_a_revision_each_that_the_lake_takes_in(
    way: Way, spark: SparkSession
) -> None:
    way.dispatch("late", 1, van_id="N0LATE")
    way.dispatch("twice", van_id="N0LATE", destination="BQN")
    way.dispatch("old", van_id="N0LATE", dispatched_at=DISPATCHED_AT - timedelta(days=1))
    way.dispatch("never", van_id=None)
    way.enrich()
    way.dimensions.publish("vans", *ROWS["vans"], LATE_VAN)
    assert way.repair().look(None, 0) == Progress(4, 3, 0, Counter({"vans": 3}))
    assert way.run(since=DISPATCHED_AT) == Progress(3, 2, 2, Counter({"vans": 2}))
    # What is on the topic and not yet in the lake, nobody can know to be repaired.
    with pytest.raises(RepairFailed, match=r"the lake has not taken in what is in .* at offset .* Is it running\?"):
        way.run()
    way.land()
    way.dimensions.publish("depots", *ROWS["depots"], LATE_DEPOT)
    assert way.run() == Progress(3, 2, 2, Counter({"vans": 1, "depots.destination": 1}))
    way.land()
    assert way.run() == Progress(1, 0, 0, Counter())

    replaced = [("late", 0, ("vans",)), ("twice", 0, ("depots.destination", "vans")), ("old", 0, ("vans",))]
    replaced += [("twice", 1, ("depots.destination",))]
    newest = [("late", 1, ()), ("twice", 2, ()), ("old", 1, ()), ("never", 0, ("vans",))]
    assert _rows(event for event, _, _ in events(way.topics)) == Counter(replaced + newest)
    assert _rows(way.query("select * from parcels")) == Counter(replaced + newest)
    assert _rows(way.query(LATEST.format(table="parcels"))) == Counter(newest)
    # The same statement in Spark.
    table = spark.createDataFrame(sorted(replaced + newest), "coordinate string, revision int, unmatched array<string>")
    found = spark.sql(LATEST, table=table).collect()
    assert Counter((row.coordinate, row.revision, tuple(row.unmatched)) for row in found) == Counter(newest)

    (first, was, record), (event, headers, repaired) = [
        each for each in events(way.topics) if each[0]["parcel_id"] == "late"
    ]
    changed = {name for name in event if event[name] != first[name]}
    assert changed == {"revision", "unmatched", "dimension_versions", *dispatches_enriched.lookups[-1].fields}
    assert (event["van_model"], event["dimension_versions"]["vans"]) == ("G-320", 1)
    # In the partition of its key, so behind what is there of the same parcel.
    assert (repaired.key(), repaired.partition()) == (b"late", record.partition())
    assert headers == {
        **{name: value for name, value in was.items() if name != "ce_causationid"},
        "ce_source": b"/spark/repair/dispatches_enriched",
        "ce_time": b"2013-01-01T10:17:00.000Z",
    }


@pytest.mark.parametrize("topic", [ENRICHED, DISPATCHED])
def test_a_topic_that_was_made_anew_is_not_repaired_by_rows_of_the_old_one(way: Way, topic: str) -> None:
    way.dispatch("late", van_id="N0LATE")
    way.enrich()
    way.dimensions.publish("vans", *ROWS["vans"], LATE_VAN)
    name = way.topics.catalog.topic(topic).name
    way.topics.make_anew(name)
    before = len(events(way.topics))
    with pytest.raises(PositionsDisagree, match=f"{name} was deleted and made anew"):
        way.run()
    assert len(events(way.topics)) == before


def test_a_revision_that_has_no_next_is_left_alone(way: Way) -> None:
    way.dispatch("late", van_id="N0LATE")
    way.enrich()
    (_, _, enriched), codec = events(way.topics)[0], Codec(way.registry.by_id)
    schema_id = way.registry.latest(way.topics.enriched.subject).id
    event = codec.decode(enriched.value() or b"") | {"revision": 2**31 - 1}
    forged = RawRecord(enriched.key(), codec.encode(schema_id, event), ((b"ce_id", b"theirs"),))
    send_raw(way.settings.kafka, way.topics.enriched.name, 0, [forged])
    way.land()
    way.dimensions.publish("vans", *ROWS["vans"], LATE_VAN)
    assert way.run() == Progress(1, 1, 1, Counter({"vans": 1}))


def test_a_field_that_is_never_null_has_the_default_of_its_schema(spark: SparkSession) -> None:
    time = {"type": "long", "logicalType": "timestamp-millis"}
    fields = [
        {"name": "number", "type": "int", "default": 7},
        {"name": "text", "type": "string", "default": "x"},
        {"name": "part", "type": "float", "default": 0.5},
        {"name": "own", "type": "string", "default": "not of the source"},
        {"name": "needed", "type": "long"},
        {"name": "may_lack", "type": ["null", "string"], "default": None},
        {"name": "at", "type": time, "default": 0},
    ]
    names = "number int, text string, part float, needed bigint, may_lack string, at timestamp"
    given = spark.createDataFrame([], names).schema
    found = defaults(json.dumps({"fields": fields}), given)
    row = spark.range(1).select(*[each.alias(name) for name, each in found.items()])
    assert row.schema.simpleString() == "struct<number:int,text:string,part:float>"
    assert [each.asDict() for each in row.collect()] == [{"number": 7, "text": "x", "part": 0.5}]


@pytest.mark.parametrize("has_default", [True, False])
def test_a_row_of_before_a_field_has_its_default_or_is_left_alone_and_holds_up_no_other_one(
    way: Way, has_default: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if a field that is never null had come with a later version of the schema."""
    for parcel in ("older", "newer"):
        way.dispatch(parcel, van_id="N0LATE")
    way.enrich()
    way.dimensions.publish("vans", *ROWS["vans"], LATE_VAN)
    enriched = Repair._enriched

    def with_an_older_one(self: Repair, rows: pa.Table) -> list[dict[str, Any]]:
        at = rows.schema.get_field_index("parcel_number")
        numbers = pa.array([None, *rows["parcel_number"].to_pylist()[1:]], rows.schema.field(at).type)
        return enriched(self, rows.set_column(at, "parcel_number", numbers))

    monkeypatch.setattr(Repair, "_enriched", with_an_older_one)
    repair = way.repair()
    if has_default:
        repair._defaults = {"parcel_number": F.lit(-1)}
    assert repair.run(None, 0, lambda _: None).sent == (2 if has_default else 1)
    revised = [event["parcel_number"] for event, _, _ in events(way.topics) if event["revision"]]
    assert (-1 in revised) is has_default


def test_a_strangers_record_has_no_raw_one_and_is_left_alone(way: Way) -> None:
    way.dispatch("late", van_id="N0LATE")
    way.enrich()
    (_, _, enriched) = events(way.topics)[0]
    forged = RawRecord(enriched.key(), enriched.value(), ((b"ce_id", b"theirs"),))
    send_raw(way.settings.kafka, way.topics.enriched.name, 0, [forged])
    way.land()
    way.dimensions.publish("vans", *ROWS["vans"], LATE_VAN)
    assert way.run() == Progress(1, 1, 1, Counter({"vans": 1}))
    way.land()
    assert way.run() == Progress(0, 0, 0, Counter())


def test_a_row_is_repaired_when_it_gains_a_lookup_and_loses_none(spark: SparkSession) -> None:
    cases = [
        (["vans"], [], ["couriers", None], True),
        (["couriers", "vans"], ["couriers"], [None, None], True),
        (["vans"], ["vans"], ["couriers", None], False),
        (["vans"], ["couriers"], ["couriers", None], False),
        (["vans"], ["couriers", "vans"], ["couriers", None], False),
        (["vans"], ["couriers"], [None, None], True),
        (["vans"], ["couriers", "vans"], [None, None], False),
    ]
    names = "__was_unmatched array<string>, unmatched array<string>, __matched array<string>, expected boolean"
    rows = spark.createDataFrame(cases, names)
    assert rows.where(repairable() != rows.expected).collect() == []


def test_a_lookup_that_was_added_since_is_not_lost_and_one_that_had_a_row_is(way: Way) -> None:
    for parcel in ("added", "lost"):
        way.dispatch(parcel, courier="ZZ", van_id="N0LATE")
    way.enrich()
    codec, schema_id = Codec(way.registry.by_id), way.registry.latest(way.topics.enriched.subject).id
    for event, headers, record in events(way.topics):
        # As if `couriers` had not been among the lookups, or its row had gone since.
        as_if = {"unmatched": ["vans"], "courier_name": "Zed" if event["parcel_id"] == "lost" else None, "revision": 1}
        forged = RawRecord(record.key(), codec.encode(schema_id, event | as_if), ((b"ce_id", headers["ce_id"]),))
        send_raw(way.settings.kafka, way.topics.enriched.name, record.partition() or 0, [forged])
    way.land()
    way.dimensions.publish("vans", *ROWS["vans"], LATE_VAN)
    assert way.run() == Progress(2, 1, 1, Counter({"vans": 1}))
    (repaired,) = (event for event, _, _ in events(way.topics) if event["revision"] == 2)
    assert (repaired["parcel_id"], repaired["unmatched"], repaired["van_model"]) == ("added", ["couriers"], "G-320")


def test_what_a_row_of_before_a_field_lacks_is_taken_from_the_raw_records_row(way: Way) -> None:
    now = way.topics.catalog
    newest = now.schema(ENRICHED)
    older = schema_with(without=["van_id"], base=newest)
    for versions, parcel in (((older,), "older"), ((older, newest), "newer")):
        way.topics.catalog = dataclasses.replace(now, _schemas={**now._schemas, ENRICHED: versions})
        way.dispatch(parcel, van_id="N0LATE")
        way.enrich()
    way.dimensions.publish("vans", *ROWS["vans"], LATE_VAN)
    found = way.repair().look(None, 0)
    assert found == Progress(2, 1, 0, Counter({"vans": 1}), untold=1)
    way.land(DISPATCHED)
    assert way.run() == Progress(2, 2, 2, Counter({"vans": 2}))
    way.land()
    repaired = way.query("select parcel_id, van_id, van_model from parcels where revision = 1 order by parcel_id")
    assert [tuple(each.values()) for each in repaired] == [(parcel, "N0LATE", "G-320") for parcel in ("newer", "older")]


def test_large_rows_are_cut_by_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark.queries.repair._BYTES_AT_ONCE", 1_000)
    values = ["x" * size for size in (900, 2_000, 10, 10, 10, 950, 10)]
    views = pa.record_batch({"value": pa.array(values).cast(pa.string_view())})
    batch = _as_spark_takes_it(views)
    assert _as_spark_takes_it(views.slice(2, 3)).nbytes < 100
    pieces = list(_cut([batch.slice(0, 3), batch.slice(3)], 100))
    assert [each for piece in pieces for each in piece["value"].to_pylist()] == values
    assert all(piece.num_rows == 1 or piece.nbytes <= 1_000 for piece in pieces)
    assert [piece.num_rows for piece in _cut([batch.slice(2, 3)], 2)] == [2, 1]


def test_a_transaction_is_cut_by_its_bytes() -> None:
    sizes = [HELD_BYTES // 2, HELD_BYTES // 2, 1, HELD_BYTES + 1, 1, 1]
    records = [Outgoing("a/0/0", None, bytes(size), "") for size in sizes]
    assert [[len(each.value) for each in piece] for piece in transactions(records)] == [
        sizes[:2],
        sizes[2:3],
        sizes[3:4],
        sizes[4:],
    ]
    assert list(transactions([])) == []


def test_a_second_repair_fences_the_first_and_goes_on_from_what_that_has_committed(way: Way) -> None:
    for number in range(6):
        way.dispatch(f"late{number}", number % 2, van_id="N0LATE")
    way.enrich()
    way.dimensions.publish("vans", *ROWS["vans"], LATE_VAN)
    second: list[Progress] = []

    def meanwhile(_: Progress) -> None:
        way.land()
        second.append(way.run())

    with pytest.raises(RepairFailed, match="another repair began"):
        way.repair().run(None, 0, meanwhile, rows_at_once=2)
    assert [progress.sent for progress in second] == [4]
    assert _rows(event for event, _, _ in events(way.topics)) == Counter(
        {(f"late{number}", *rest): 1 for number in range(6) for rest in ((0, ("vans",)), (1, ()))}
    )


def test_what_a_killed_repair_left_open_is_never_seen_and_what_it_committed_stays(
    stack: LocalStack, settings: SparkSettings, topics: Topics
) -> None:
    route = Route(
        "repair/dispatches_enriched", topics.dispatched.name, topics.enriched.name, topics.enriched.dead_letter_topic
    )
    command = [sys.executable, "-m", "tests.spark.queries.repairer", route.source, route.target]
    with subprocess.Popen(command, env=os.environ | stack.settings_env()) as process:
        assert process.wait(60) == -signal.SIGKILL
    with Emission(settings.kafka.client_config(), route) as emission:
        # Its making is what ends the other one's transaction.
        assert [message.value() for message in topics.read(route.target)] == [b"0", b"1", b"2", b"3"]
        emission.commit([Outgoing("a/0/0", None, b"4", "")])
    assert Counter(message.value() for message in topics.read(route.target)) == Counter([b"0", b"1", b"2", b"3", b"4"])


def _rows(found: Iterable[Any]) -> Counter[tuple[str, int, tuple[str, ...]]]:
    return Counter((row["parcel_id"], row["revision"], tuple(row["unmatched"])) for row in found)

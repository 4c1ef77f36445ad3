"""Joins on the real stack, against an oracle in plain Python."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from contracts.definitions.catalog import Catalog
from contracts.servers.registry import Registry
from spark.records.topic_schemas import TopicSchemas
from spark.runtime.settings import SparkSettings
from spark.sql_pipeline import sql_pipeline
from tests.sample.pipelines.parcel_trips import parcel_trips
from tests.spark.derivation.test_sql_pipelines import TRIPS as IN_SQL
from tests.spark.examples import DELIVERED, DISPATCHED, Topics, a_delivery, body, framed, schema_with
from tests.spark.joins.trips import TEN, TRIPS, Trips, trip
from tests.spark.live_query import wait_for

_LATE_AFTER, _BOUND = 2, 20
"""In hours."""


@pytest.fixture
def topics(settings: SparkSettings, catalog: Catalog, registry: Registry) -> Iterator[Topics]:
    with Topics(settings, catalog, registry, names=(DISPATCHED, DELIVERED, TRIPS)) as made:
        yield made


@pytest.fixture
def query(spark: SparkSession, settings: SparkSettings, registry: Registry, topics: Topics) -> Trips:
    return Trips(spark, settings, registry, topics)


def inner(dispatches: DataFrame, deliveries: DataFrame) -> DataFrame:
    """Without P3, those that were delivered; a filter of the one input, renamed columns, and a filter of the pairs."""
    ours = dispatches.where("parcel_id <> 'P3'").withColumnRenamed("dispatched_at", "left_at")
    theirs = deliveries.select(F.col("parcel_id").alias("of"), "delivered_at", "delivered_late_minutes")
    is_its_own = F.expr("parcel_id = of AND delivered_at BETWEEN left_at AND left_at + INTERVAL 20 HOURS")
    pairs = ours.join(theirs, is_its_own).where("parcel_id <> 'P4'")
    return pairs.withColumnRenamed("left_at", "dispatched_at")


def test_a_parcel_has_its_delivery_and_one_that_never_came_is_told_once(query: Trips) -> None:
    query.dispatch(("A", 0), ("B", 0), ("C", 1))
    with query.running() as running:
        query.deliver(("A", 5), partition=1)
        running.processAllAvailable()
        assert query.trips() == Counter([trip("A", 0, 5)])
        query.deliver(("B", 21))
        query.dispatch(("D", 30))
        running.processAllAvailable()
        # The watermark is that of the deliveries, 19 hours: C may still come.
        assert query.trips() == Counter([trip("A", 0, 5)])
        query.deliver(("D", 31))
        running.processAllAvailable()
        # It is 28 hours now.
    never = [trip("B", 0, None), trip("C", 1, None)]
    assert query.trips() == Counter([trip("A", 0, 5), *never, trip("D", 30, 31)])
    dispatched, delivered = query.names[DISPATCHED], query.names[DELIVERED]
    assert query.ids_of() == sorted(
        [
            f"{dispatched}/0/0+{delivered}/1/0",
            f"{dispatched}/0/1",
            f"{dispatched}/0/2",
            f"{dispatched}/0/3+{delivered}/0/1",
        ]
    )
    assert query.late_ones() == []
    query.take_in()
    assert query.trips().total() == 4


@pytest.mark.parametrize(
    ("how", "alone"), [pytest.param("inner", [], marks=pytest.mark.long), ("left_outer", [trip("B", 0, None)])]
)
def test_a_record_with_a_null_key_has_no_pair_and_comes_out_alone_in_a_left_join_only(
    query: Trips, how: str, alone: list[tuple[str, datetime, datetime | None]]
) -> None:
    def by_van(dispatches: DataFrame, deliveries: DataFrame) -> DataFrame:
        theirs = deliveries.select(F.col("van_id").alias("of"), "delivered_at", "delivered_late_minutes")
        is_of_its_van = "van_id = of AND delivered_at BETWEEN dispatched_at AND dispatched_at + INTERVAL 20 HOURS"
        return dispatches.join(theirs, F.expr(is_of_its_van), how=how)

    query.with_function(by_van)
    query.dispatch(("A", 0), ("C", 30))
    query.dispatch(("B", 0), van_id=None)
    query.deliver(("A", 5), ("C", 31))
    query.deliver(("B", 5), van_id=None)
    query.take_in()
    # The watermark is 28 hours.
    assert query.trips() == Counter([trip("A", 0, 5), trip("C", 30, 31), *alone])
    letters = [query.topics.catalog.topic(name).dead_letter_topic for name in (DISPATCHED, DELIVERED)]
    assert [query.late_ones(), *map(query.set_aside, letters)] == [[], [], []]


@pytest.mark.long
def test_a_partition_that_a_source_gets_is_read_from_its_first_record(query: Trips) -> None:
    query.dispatch(("A", 0), ("B", 1))
    with query.running() as running:
        running.processAllAvailable()
        query.topics.add_partitions(3, DELIVERED)
        query.deliver(("A", 5), partition=2)
        running.processAllAvailable()
    # One that is added while nobody reads.
    query.topics.add_partitions(3, DISPATCHED)
    query.dispatch(("C", 2), partition=2)
    query.deliver(("B", 6), ("C", 6))
    query.take_in()
    assert query.trips() == Counter([trip("A", 0, 5), trip("B", 1, 6), trip("C", 2, 6)])


@pytest.mark.parametrize(
    ("kind", "seed"),
    [
        ("left_outer", 1),
        pytest.param("inner", 2, marks=pytest.mark.long),
        pytest.param("left_outer in SQL", 3, marks=pytest.mark.long),
    ],
)
def test_whatever_comes_in_whatever_order_the_pairs_are_those_of_the_records(
    query: Trips, tmp_path: Path, kind: str, seed: int
) -> None:
    if kind == "inner":
        query.with_function(inner)
    if kind == "left_outer in SQL":
        (tmp_path / "parcel_trips.sql").write_text(IN_SQL)
        query.with_function(sql_pipeline(tmp_path / "parcel_trips.sql").function)
    chance = random.Random(seed)
    kept: dict[str, list[tuple[str, int]]] = {DISPATCHED: [], DELIVERED: []}
    sent = {DISPATCHED: [0, 0], DELIVERED: [0, 0]}
    newest: dict[str, int] = {}
    watermark, late, dropped = -(10**6), list[str](), dict[int, int]()
    with query.running() as running:
        for number in range(6):
            begin = number * chance.choice([4, 15, 40])
            for topic, send in ((DISPATCHED, query.dispatch), (DELIVERED, query.deliver)):
                for partition in (0, 1):
                    found = [(f"P{chance.randrange(5)}", chance.randrange(begin, begin + 30)) for _ in range(5)]
                    send(*found, partition=partition)
                    for name, at in found:
                        coordinate = f"{query.names[topic]}/{partition}/{sent[topic][partition]}"
                        sent[topic][partition] += 1
                        # That their ids are equal tells Spark that neither delivery can have a pair: it leaves out both.
                        is_filtered = kind == "inner" and name in ("P3", "P4")
                        if not is_filtered and at <= watermark:
                            late.append(coordinate)
                        elif not is_filtered:
                            kept[topic].append((name, at))
                        newest[topic] = max(at, newest.get(topic, at))
            running.processAllAvailable()
            watermark = max(watermark, min(newest.values()) - _LATE_AFTER)
            for progress in running.recentProgress:
                (operator,) = progress["stateOperators"]
                of_batch = dropped.get(progress["batchId"], 0)
                dropped[progress["batchId"]] = max(operator["numRowsDroppedByWatermark"], of_batch)
    pairs = [
        (name, at, delivered)
        for name, at in kept[DISPATCHED]
        for other, delivered in kept[DELIVERED]
        if name == other and at <= delivered <= at + _BOUND
    ]
    expected = Counter(trip(*pair) for pair in pairs)
    if kind != "inner":
        matched = {(name, at) for name, at, _ in pairs}
        over = [each for each in kept[DISPATCHED] if each not in matched and each[1] + _BOUND < watermark]
        expected += Counter(trip(name, at, None) for name, at in over)
    assert late, "a scenario without a late record shows little"
    assert query.late_ones() == sorted(late)
    assert sum(dropped.values()) == len(late)
    assert query.trips() == expected
    assert len(set(query.ids())) == len(query.ids())


@pytest.mark.long
def test_bad_and_late_records_of_each_topic_are_set_aside_once(query: Trips) -> None:
    letters = [query.topics.catalog.topic(name).dead_letter_topic for name in (DISPATCHED, DELIVERED)]
    dispatched, delivered = query.names[DISPATCHED], query.names[DELIVERED]
    with query.running() as running:
        query.dispatch(("A", 0), ("B", 50))
        query.topics.send(b"junk")
        query.deliver(("B", 51))
        query.topics.send(b"junk", topic=DELIVERED, partition=1)
        running.processAllAvailable()
        # The watermark is 48 hours, that of the dispatches.
        query.dispatch(("C", 48), ("C", 49), partition=1)
        query.deliver(("A", 10), ("B", 48), ("C", 50))
        running.processAllAvailable()
    assert [query.set_aside(name) for name in letters] == [[f"{dispatched}/0/2"], [f"{delivered}/1/0"]]
    assert query.late_ones() == sorted([f"{dispatched}/1/0", f"{delivered}/0/1", f"{delivered}/0/2"])
    expected = Counter([trip("A", 0, None), trip("B", 50, 51), trip("C", 49, 50)])
    assert query.trips() == expected
    assert query.positions() == {DISPATCHED: {0: 3, 1: 2}, DELIVERED: {0: 4, 1: 1}}
    query.forget_commit()
    query.take_in()
    assert query.trips() == expected
    assert len(query.late_ones()) == 3
    assert [len(query.set_aside(name)) for name in letters] == [1, 1]


@pytest.mark.long
def test_a_pair_that_cannot_be_a_record_is_left_out_named_and_counted(query: Trips) -> None:
    def without_minutes(dispatches: DataFrame, deliveries: DataFrame) -> DataFrame:
        pairs: DataFrame = parcel_trips.function(dispatches, deliveries)
        return pairs.withColumn("late_minutes", F.when(F.col("parcel_id") != "B", F.col("late_minutes")))

    query.with_function(without_minutes)
    query.dispatch(("A", 0), ("B", 0))
    query.deliver(("A", 5), ("B", 5))
    pair = f"{query.names[DISPATCHED]}/0/1+{query.names[DELIVERED]}/0/1"
    query.take_in_without_one(f"'{pair}': the schema has no null for late_minutes")
    assert query.trips() == Counter([trip("A", 0, 5)])


@pytest.mark.long
def test_a_batch_that_was_cut_off_between_two_partitions_is_finished(query: Trips) -> None:
    query.dispatch(("A", 1))
    query.deliver(("A", 2))
    query.take_in()
    sent = query.cut_off_between_partitions(1, 2)
    cut_off = query.ids()
    query.take_in()
    assert query.trips() == Counter([trip("A", 1, 2), *[trip(name, 1, 2) for name in sent]])
    assert len(set(query.ids())) == len(query.ids()) > len(cut_off)


@pytest.mark.long
@pytest.mark.parametrize("more", [-3, 3])
def test_a_plan_that_a_predecessor_wrote_over_its_successors_is_refused(query: Trips, more: int) -> None:
    names = [f"M{number}" for number in range(6)]
    query.dispatch(*[(name, 1) for name in names])
    query.take_in()
    query.deliver(*[(name, 2) for name in names[:3]])
    query.take_in()
    planned = query.last("/offsets/")
    query.deliver(*[(name, 2) for name in names[3:]])
    query.plan_otherwise(planned, query.names[DELIVERED], more)
    query.forget_commit()
    told = query.told("reads other records by its checkpoint", "rebuild")
    assert query.trips() == Counter(trip(name, 1, 2) for name in names[:3])
    query.take_in(on_state_loss=told)
    assert set(query.trips()) == {trip(name, 1, 2) for name in names}


@pytest.mark.long
def test_without_its_state_it_does_not_start_until_told_how(query: Trips) -> None:
    query.dispatch(("A", 0))
    query.take_in()
    query.remove(query.files())
    query.deliver(("A", 1))
    query.take_in(on_state_loss=query.told("is gone", "rebuild"))
    assert query.trips() == Counter([trip("A", 0, 1)])


@pytest.mark.long
def test_an_id_that_nobody_knows_is_looked_up_for_the_topic_of_its_record(
    query: Trips, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, look_up = list[tuple[str, int]](), TopicSchemas.look_up

    def recorded(self: TopicSchemas, schema_id: int, stopping: threading.Event) -> None:
        asked.append((self.subject, schema_id))
        look_up(self, schema_id, stopping)

    monkeypatch.setattr(TopicSchemas, "look_up", recorded)
    deliveries = query.topics.catalog.topic(DELIVERED)
    with query.whole():
        query.dispatch(("A", 0))
        query.topics.send(framed(90_003, b"body"), topic=DELIVERED)
        query.deliver(("A", 1))
        wait_for("the pair", lambda: query.trips() == Counter([trip("A", 0, 1)]))
    assert asked == [(deliveries.subject, 90_003)]
    assert len(query.set_aside(deliveries.dead_letter_topic)) == 1


@pytest.mark.long
def test_the_state_outlives_a_new_version_of_the_sources_schemas(query: Trips, registry: Registry) -> None:
    query.dispatch(("A", 0))
    query.take_in()
    for topic in (DISPATCHED, DELIVERED):
        query.topics.add_field(registry, topic)
    query.deliver(("A", 5))
    query.take_in()
    assert query.trips() == Counter([trip("A", 0, 5)])


@pytest.mark.long
def test_a_version_that_is_registered_while_it_runs_is_read(query: Trips, registry: Registry) -> None:
    schema = query.topics.catalog.schema(DELIVERED)
    newer = schema_with({"name": "gate", "type": ["null", "string"], "default": None, "doc": "Gate."}, base=schema)
    with query.whole() as thread:
        query.dispatch(("A", 0))
        query.deliver(("A", 1))
        wait_for("the first pair", lambda: query.trips() == Counter([trip("A", 0, 1)]))
        number = registry.register(query.topics.catalog.topic(DELIVERED).subject, newer)
        value = a_delivery(parcel_id="A", delivered_at=TEN + timedelta(hours=2)) | {"gate": "B1"}
        query.topics.send(framed(number, body(value, newer)), topic=DELIVERED)
        query.topics.send(framed(90_001, b"body"))
        both = Counter([trip("A", 0, 1), trip("A", 0, 2)])
        wait_for("the pair of the new version", lambda: query.trips() == both)
        letters = query.topics.catalog.topic(DISPATCHED).dead_letter_topic
        wait_for("the dead letter of an id that nobody knows", lambda: len(query.topics.read(letters)) == 1)
        assert thread.is_alive()

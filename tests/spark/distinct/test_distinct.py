"""Distinct events on the real stack, against an oracle in plain Python."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from contracts.definitions.catalog import Catalog
from contracts.records.coordinates import Coordinate
from contracts.servers.registry import Registry
from deploy.records.trace import Trace
from spark.runtime.settings import SparkSettings
from tests.spark.aggregates.test_stateful import read_again
from tests.spark.auditor import PLATFORM
from tests.spark.distinct.once import ONCE, Once, Oracle
from tests.spark.examples import DISPATCHED, Topics, a_dispatch, body, framed
from tests.spark.live_query import events


@pytest.fixture
def topics(settings: SparkSettings, catalog: Catalog, registry: Registry) -> Iterator[Topics]:
    with Topics(settings, catalog, registry, names=(DISPATCHED, ONCE, *PLATFORM)) as made:
        yield made


@pytest.fixture
def query(spark: SparkSession, settings: SparkSettings, registry: Registry, topics: Topics) -> Once:
    return Once(spark, settings, registry, topics)


def heavy(dispatches: DataFrame) -> DataFrame:
    """A filter, of a computed column, before the step, and a computed column that only the contract of another topic would have behind."""
    once = dispatches.withColumn("kilograms", F.col("weight_grams") / 1000).where("kilograms >= 1")
    return once.dropDuplicatesWithinWatermark(["parcel_id"]).withColumn("is_heavy", F.lit(True))


def test_an_event_that_is_sent_again_is_let_through_once_until_it_is_forgotten(query: Once) -> None:
    query.dispatch(("A", 0), ("A", 0), ("B", 10))
    with query.running() as running:
        running.processAllAvailable()
        query.dispatch(("A", 0), ("C", 239), partition=1)
        running.processAllAvailable()
        # The watermark is 119 minutes. A, of ten o'clock, is remembered until it is 120.
        query.dispatch(("A", 130), ("D", 119), ("E", 120))
        running.processAllAvailable()
        query.dispatch(("F", 240))
        running.processAllAvailable()
        query.dispatch(("A", 130), ("C", 239))
        running.processAllAvailable()
    expected = [
        ("A", 0, (0, 0)),
        ("B", 10, (0, 2)),
        ("C", 239, (1, 1)),
        ("E", 120, (0, 5)),
        ("F", 240, (0, 6)),
        ("A", 130, (0, 7)),
    ]
    assert sorted(query.let_through()) == sorted(expected)
    assert query.late_ones() == [f"{query.source}/0/4"]
    assert query.ids_of() == sorted(f"{query.source}/{partition}/{offset}" for _, _, (partition, offset) in expected)
    query.take_in()
    assert len(query.let_through()) == len(expected)


@pytest.mark.parametrize("seed", [4, pytest.param(7, marks=pytest.mark.long)])
def test_whatever_comes_in_whatever_order_what_is_let_through_is_what_the_oracle_says(query: Once, seed: int) -> None:
    chance, oracle, sent = random.Random(seed), Oracle(), [0, 0]
    dropped: dict[int, int] = {}
    with query.running() as running:
        for number in range(6):
            begin = number * chance.choice([20, 60, 100])
            batch = []
            for partition in (0, 1):
                found = [(f"P{chance.randrange(6)}", chance.randrange(begin, begin + 150)) for _ in range(6)]
                # Some of them once more.
                found += chance.sample(found, 3)
                query.dispatch(*found, partition=partition)
                batch += [(event, (partition, sent[partition] + at)) for at, event in enumerate(found)]
                sent[partition] += len(found)
            running.processAllAvailable()
            oracle.take(batch)
            for progress in running.recentProgress:
                of_batch = sum(each["numRowsDroppedByWatermark"] for each in progress["stateOperators"])
                dropped[progress["batchId"]] = max(of_batch, dropped.get(progress["batchId"], 0))
    assert oracle.late, "a scenario without a late record shows little"
    assert len(oracle.let_through) > 6, "one in which none is forgotten, too"
    assert sorted(query.let_through()) == sorted(oracle.let_through)
    assert query.late_ones() == sorted(f"{query.source}/{partition}/{offset}" for partition, offset in oracle.late)
    assert sum(dropped.values()) == len(oracle.late)


@pytest.mark.long
def test_bad_and_late_records_are_set_aside_once_and_a_filter_leaves_out_before(query: Once) -> None:
    query.with_function(heavy)
    letters = query.topics.catalog.topic(DISPATCHED).dead_letter_topic
    light = framed(query.topics.schema_ids[DISPATCHED], body(a_dispatch(parcel_id="L", weight_grams=999)))
    with query.running() as running:
        query.dispatch(("A", 0), ("B", 300))
        query.topics.send(b"junk", light)
        running.processAllAvailable()
        # The watermark is 180 minutes. The light one is of seventeen past ten, and no filter lets it through.
        query.topics.send(light, partition=1)
        query.dispatch(("C", 180), ("C", 181), partition=1)
        running.processAllAvailable()
    expected = [("A", 0), ("B", 300), ("C", 181)]
    assert query.named() == expected
    assert query.set_aside(letters) == [f"{query.source}/0/2"]
    assert query.late_ones() == [f"{query.source}/1/1"]
    assert query.positions() == {DISPATCHED: {0: 4, 1: 3}}
    query.forget_commit()
    query.take_in()
    assert query.named() == expected
    assert [len(query.late_ones()), len(query.set_aside(letters))] == [1, 1]


@pytest.mark.long
def test_an_event_that_cannot_be_a_record_is_left_out_named_and_counted(query: Once) -> None:
    # It is in the value, and once more as the key.
    query.dispatch(("A", 0), ("B" * 500_000, 0), ("C", 0))
    query.take_in_without_one(f"'{query.source}/0/1': key, id and value have 1000")
    assert query.named() == [("A", 0), ("C", 0)]


@pytest.mark.long
def test_records_are_read_again_only_where_one_was_set_aside(query: Once, monkeypatch: pytest.MonkeyPatch) -> None:
    again = read_again(monkeypatch)
    with query.running() as running:
        query.dispatch(("A", 0), ("A", 0), ("B", 200))
        running.processAllAvailable()
        assert again == [], "one that is left out for another one of its event is not set aside"
        query.dispatch(("C", 10), ("B", 200))
        running.processAllAvailable()
        assert again == [2]
        query.topics.send(b"junk")
        running.processAllAvailable()
        assert again == [2, 1]


def test_a_batch_that_was_cut_off_between_two_partitions_lets_the_same_records_through(query: Once) -> None:
    query.dispatch(("A", 300))
    query.take_in()
    sent = query.cut_off_between_partitions(200)
    cut_off = query.let_through()
    query.take_in()
    whole = query.let_through()
    assert {*cut_off} <= {*whole}
    # That of the first partition, whichever comes first over the network, in the state as in the topic.
    assert query.named() == sorted([("A", 300), *[(name, 200) for name in sent]])
    assert len(cut_off) < len(whole) == len({*whole})


@pytest.mark.long
def test_events_of_one_key_keep_their_order_though_the_state_lies_in_several_partitions(
    spark: SparkSession, settings: SparkSettings, registry: Registry, topics: Topics
) -> None:
    named_by = ("late_minutes", "parcel_id")
    contract = topics.catalog.topic(ONCE)
    derivation = contract.derivation
    assert derivation is not None
    changed = contract.model_copy(update={"derivation_section": derivation.model_copy(update={"named_by": named_by})})
    topics.catalog = dataclasses.replace(topics.catalog, topics={**topics.catalog.topics, ONCE: changed})
    query = Once(spark, settings, registry, topics)
    query.with_function(lambda dispatches: dispatches.dropDuplicatesWithinWatermark([*named_by]))
    numbers = [number for number in range(60) for _ in (1, 2)]
    events_ = [a_dispatch(parcel_id=f"P{number % 2}", late_minutes=number) for number in numbers]
    query.topics.send(*[framed(topics.schema_ids[DISPATCHED], body(each)) for each in events_])
    query.take_in()
    made = events(topics, ONCE)
    for parcel in ("P0", "P1"):
        own = [
            (message.partition(), event["late_minutes"]) for event, _, message in made if event["parcel_id"] == parcel
        ]
        assert len({partition for partition, _ in own}) == 1
        assert [number for _, number in own] == [number for number in range(60) if f"P{number % 2}" == parcel]


@pytest.mark.long
@pytest.mark.long
def test_the_state_outlives_a_new_version_of_the_sources_schema(query: Once, registry: Registry) -> None:
    query.dispatch(("A", 0), ("B", 10))
    query.take_in()
    query.topics.add_field(registry)
    query.dispatch(("A", 0), ("C", 20), partition=1)
    query.take_in()
    assert query.named() == [("A", 0), ("B", 10), ("C", 20)]


@pytest.mark.long
def test_a_partition_that_the_source_gets_is_read_from_its_first_record(query: Once) -> None:
    query.dispatch(("A", 0))
    with query.running() as running:
        running.processAllAvailable()
        query.topics.add_partitions(3)
        query.dispatch(("A", 0), ("B", 10), partition=2)
        running.processAllAvailable()
    # One that is added while nobody reads.
    query.topics.add_partitions(4)
    query.dispatch(("B", 10), ("C", 20), partition=3)
    query.take_in()
    assert query.named() == [("A", 0), ("B", 10), ("C", 20)]


@pytest.mark.long
@pytest.mark.parametrize("more", [-3, 3])
def test_a_plan_that_a_predecessor_wrote_over_its_successors_is_refused(query: Once, more: int) -> None:
    begun, named = [("A", 0), ("B", 0), ("C", 0)], [("D", 0), ("E", 0), ("F", 0)]
    query.dispatch(*begun)
    query.take_in()
    query.dispatch(*named)
    query.take_in()
    planned = query.last("/offsets/")
    query.dispatch(("G", 0), ("H", 0), ("I", 0))
    query.plan_otherwise(planned, query.source, more)
    query.forget_commit()
    told = query.told("reads other records by its checkpoint", "rebuild")
    assert query.named() == [*begun, *named]
    query.take_in(on_state_loss=told)
    assert {*query.named()} == {(name, 0) for name in "ABCDEFGHI"}


@pytest.mark.long
def test_without_its_state_it_does_not_start_until_told_how(query: Once) -> None:
    query.dispatch(("A", 0), ("B", 0))
    query.take_in()
    query.remove(query.files())
    query.dispatch(("A", 0), ("C", 0))
    query.take_in(on_state_loss=query.told("is gone", "rebuild"))
    assert query.named() == [("A", 0), ("A", 0), ("B", 0), ("B", 0), ("C", 0)]
    assert len(set(query.ids())) == 3, "a rebuild writes the same ones again"


def test_trace_follows_an_event_to_the_record_that_was_let_through(
    query: Once, settings: SparkSettings, registry: Registry
) -> None:
    query.dispatch(("A", 0), ("A", 0))
    query.take_in()
    ((_, _, message),) = events(query.topics, ONCE)
    of, again = (f"{query.source}/0/{offset}" for offset in (0, 1))
    made = str(Coordinate.of(message))
    trace = Trace(settings, query.topics.catalog, registry, lambda text: None)

    def hops(coordinate: str) -> list[tuple[str, str]]:
        start = Coordinate.parse(coordinate)
        assert start is not None
        return [(step.hop, step.place) for step in trace.steps(start)]

    assert hops(of) == hops(made) == [("raw record", of), ("derived record", made)]
    assert hops(again) == [("raw record", again)]

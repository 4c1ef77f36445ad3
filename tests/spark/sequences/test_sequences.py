"""Events with what was remembered of those before them, on the real stack, against an oracle in plain Python."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from contracts.definitions.catalog import Catalog
from contracts.records.coordinates import Coordinate
from contracts.servers.registry import Registry
from deploy.records.trace import Trace
from spark.runtime.settings import SparkSettings
from tests.spark.auditor import PLATFORM
from tests.spark.examples import DISPATCHED, Topics
from tests.spark.sequences.counted import COUNTED, Counted, Oracle, by_van, some


@pytest.fixture
def topics(settings: SparkSettings, catalog: Catalog, registry: Registry) -> Iterator[Topics]:
    with Topics(settings, catalog, registry, names=(DISPATCHED, COUNTED, *PLATFORM)) as made:
        yield made


@pytest.fixture
def query(spark: SparkSession, settings: SparkSettings, registry: Registry, topics: Topics) -> Counted:
    return Counted(spark, settings, registry, topics)


@pytest.mark.parametrize("seed", [5, pytest.param(8, marks=pytest.mark.long)])
def test_whatever_comes_in_whatever_order_what_is_remembered_is_what_the_oracle_says(query: Counted, seed: int) -> None:
    chance, oracle, sent = random.Random(seed), Oracle(), [0, 0]
    dropped: dict[int, int] = {}
    with query.running() as running:
        for number in range(6):
            begin = number * chance.choice([20, 60, 100])
            batch = []
            for partition in (0, 1):
                found = some(chance, begin, begin + 150, 12)
                query.dispatch(*found, partition=partition)
                batch += [(event, (partition, sent[partition] + at)) for at, event in enumerate(found)]
                sent[partition] += len(found)
            running.processAllAvailable()
            oracle.take(batch)
            for progress in running.recentProgress:
                of_batch = sum(each["numRowsDroppedByWatermark"] for each in progress["stateOperators"])
                dropped[progress["batchId"]] = max(of_batch, dropped.get(progress["batchId"], 0))
    expected = oracle.made()
    assert oracle.late, "a scenario without a late record shows little"
    assert max(each[2] for made in expected.values() for each in made) > 2
    assert by_van(query.made()) == expected
    assert query.late_ones() == sorted(f"{query.source}/{partition}/{offset}" for partition, offset in oracle.late)
    assert sum(dropped.values()) == len(oracle.late)


@pytest.mark.long
def test_a_batch_that_runs_again_or_was_cut_off_makes_the_same_records(query: Counted) -> None:
    chance, oracle, sent = random.Random(1), Oracle(), [0, 0]

    def send(begin: int, then: int) -> None:
        batch = []
        for partition in (0, 1):
            found = [*some(chance, begin, begin + 60, 40), ("Z", then, 0)]
            query.dispatch(*found, partition=partition)
            batch += [(event, (partition, sent[partition] + at)) for at, event in enumerate(found)]
            sent[partition] += len(found)
        # What no watermark has passed when it was sent is not late, however it is shared out among batches.
        oracle.take(batch)

    send(0, 100)
    query.take_in()
    query.cut_off_while(lambda: send(1_000, 1_100))
    cut_off = query.made()
    query.dispatch(("Z", 2_000, 0))
    query.take_in()
    oracle.take([(("Z", 2_000, 0), (0, sent[0]))])
    whole = query.made()
    assert len(cut_off) < len(whole)
    assert by_van(whole) == oracle.made()
    query.forget_commit()
    query.take_in()
    assert query.made() == whole


@pytest.mark.long
def test_what_waits_outlives_a_new_version_of_the_sources_schema(query: Counted, registry: Registry) -> None:
    query.dispatch(("V", 0, 1))
    query.take_in()
    query.topics.add_field(registry)
    query.dispatch(("V", 10, 1), ("W", 500, 0), partition=1)
    query.take_in()
    assert [each[:3] for each in query.made()] == [("V", 0, 1), ("V", 10, 2)]


@pytest.mark.long
def test_an_event_for_which_after_fails_is_left_out_named_and_counted(query: Counted) -> None:
    query.dispatch(("V", 0, 1), ("V", 1, 1_000_000), ("V", 2, 1), ("W", 500, 0))
    query.take_in_without_one(f"'{query.source}/0/1': after: ArithmeticError: late by 1000000 minutes")
    assert [each[:3] for each in query.made()] == [("V", 0, 1), ("V", 2, 2)]


@pytest.mark.long
def test_without_its_state_it_does_not_start_until_told_how(query: Counted) -> None:
    query.dispatch(("V", 0, 1), ("W", 500, 0))
    query.take_in()
    query.remove(query.files())
    query.dispatch(("V", 390, 1), ("W", 900, 0))
    query.take_in(on_state_loss=query.told("is gone", "rebuild"))
    assert sorted(each[:3] for each in query.made()) == [("V", 0, 1), ("V", 0, 1), ("V", 390, 1)]


@pytest.mark.long
def test_trace_follows_an_event_to_the_record_that_was_made_of_it_and_a_late_one(
    query: Counted, settings: SparkSettings, registry: Registry
) -> None:
    with query.running() as running:
        query.dispatch(("V", 0, 1), ("W", 500, 0))
        running.processAllAvailable()
        query.dispatch(("V", 10, 1))
        running.processAllAvailable()
    trace = Trace(settings, query.topics.catalog, registry, lambda text: None)
    for offset, then in ((0, "derived record"), (2, "late record")):
        of = Coordinate(query.source, 0, offset)
        assert [step.hop for step in trace.steps(of)] == ["raw record", then]

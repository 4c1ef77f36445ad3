"""A backlog in several batches whose partitions lie apart in time: what was in time when it came is counted."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta

import pytest
import structlog
from pyspark.sql import SparkSession

from contracts.definitions.catalog import Catalog
from contracts.servers.registry import Registry
from spark.runtime.settings import SparkSettings
from spark.sources.drift import drift as drift_of
from tests.sample.pipelines.delays_by_origin import delays_by_origin
from tests.sample.pipelines.final_delays_by_origin import final_delays_by_origin
from tests.spark.aggregates.test_stateful import Dispatch, Query, groups_of
from tests.spark.examples import DISPATCHED, Topics, a_dispatch, body, framed
from tests.spark.live_query import wait_for

_TEN = datetime(2013, 1, 1, 10, 0, tzinfo=UTC)
_DAY: list[Dispatch] = [("NTH", 60 * hour, hour) for hour in range(24)]
_EVENING: list[Dispatch] = [("STH", 60 * 20 + 10 * number, number) for number in range(24)]
"""As of a partition that was added in the evening."""
_BATCH = 8


def send(topics: Topics, dispatches: Sequence[Dispatch], partition: int) -> None:
    for origin, minutes, late in dispatches:
        at = _TEN + timedelta(minutes=minutes)
        value = body(a_dispatch(origin=origin, dispatched_at=at, late_minutes=late))
        headers = [("ce_time", at.isoformat().encode())]
        topics.send(framed(topics.schema_ids[DISPATCHED], value), partition=partition, headers=headers)


@pytest.fixture
def topics(settings: SparkSettings, catalog: Catalog, registry: Registry) -> Iterator[Topics]:
    with Topics(
        settings, catalog, registry, names=(DISPATCHED, delays_by_origin.target, final_delays_by_origin.target)
    ) as made:
        send(made, _DAY, 0)
        send(made, _EVENING, 1)
        yield made


@pytest.fixture
def query(spark: SparkSession, settings: SparkSettings, registry: Registry, topics: Topics) -> Query:
    return Query(spark, settings, registry, topics)


def test_the_drift_is_the_time_between_two_partitions_of_which_the_same_share_is_read(
    settings: SparkSettings, topics: Topics
) -> None:
    kafka, name = settings.kafka.client_config() | {"group.id": "trial"}, topics.dispatched.name

    def drift(left: Mapping[int, tuple[int, int]]) -> timedelta:
        return drift_of(kafka, name, left, threading.Event())

    # The median of five records is the third.
    assert drift({0: (0, 24), 1: (0, 24)}) == timedelta(hours=20) - timedelta(minutes=2 * 50)
    assert drift({0: (20, 24), 1: (0, 24)}) < timedelta(hours=3)
    assert drift({0: (24, 24), 1: (0, 24)}) == drift({}) == timedelta(0)


def test_no_event_of_a_backlog_is_late_because_of_another_partition_and_later_ones_are_as_the_contract_says(
    query: Query, topics: Topics
) -> None:
    with structlog.testing.capture_logs() as logs, query.whole(max_offsets_per_trigger=_BATCH):
        wait_for("all to be counted", lambda: query.newest() == groups_of([*_DAY, *_EVENING]), every=1.0)
        assert query.late_ones() == []
        # The last batch of the backlog has moved the watermark to where it would have been.
        send(topics, [("NTH", 60, 5)], 0)
        wait_for("a late one", lambda: query.late_ones() == [f"{topics.dispatched.name}/0/{len(_DAY)}"], every=1.0)
    told = [each["event"] for each in logs]
    assert told.count("the watermark stays back until the backlog is read: its partitions are apart in time") == 1
    assert [each["why"] for each in logs if each["event"] == "the query begins anew"] == ["the backlog is read"]


def test_who_reads_a_backlog_and_ends_has_written_all_windows_that_the_contract_says_are_over(
    spark: SparkSession, settings: SparkSettings, registry: Registry, topics: Topics
) -> None:
    query = Query(spark, settings, registry, topics, final_delays_by_origin)
    with query.whole(max_offsets_per_trigger=_BATCH, trigger="available-now") as thread:
        thread.join(240)
        assert not thread.is_alive()
    groups = groups_of([*_DAY, *_EVENING])
    over = max(group["begins_at"] for group in groups.values()) - timedelta(minutes=120)
    written = query.newest()
    assert written.keys() == {key for key, group in groups.items() if group["ends_at"] <= over}
    assert all(written[key]["dispatches"] == groups[key]["dispatches"] for key in written)

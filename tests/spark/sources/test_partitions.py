"""Partitions that a topic gets while `live` and `lake` run."""

from __future__ import annotations

from collections import Counter

from pyspark.sql import SparkSession

from contracts.servers.registry import Registry
from spark.queries.lake import LakeTable
from spark.runtime.lifecycle import Lifecycle
from spark.runtime.settings import LakeSettings, SparkSettings
from tests.spark.examples import DISPATCHED, Topics
from tests.spark.live_query import Dimensions, events, running
from tests.spark.queries.test_lake import parcels


def test_live_takes_added_partitions_in_from_their_first_record_and_again_none_after_a_restart(
    spark: SparkSession,
    settings: SparkSettings,
    registry: Registry,
    topics: Topics,
    published: Dimensions,
) -> None:
    with running(spark, settings, registry, topics.catalog, published) as query:
        topics.send_dispatches("a")
        query.processAllAvailable()
        topics.add_partitions(4)
        topics.send_dispatches("b", "c", partition=2)
        topics.send_dispatches("d", partition=3)
        query.processAllAvailable()
    # One that is added while nobody reads.
    topics.add_partitions(5)
    topics.send_dispatches("e", partition=4)
    topics.send_dispatches("f", partition=2)
    with running(spark, settings, registry, topics.catalog, published) as query:
        query.processAllAvailable()
        found = events(topics)
    name = topics.dispatched.name
    places = {"a": "0/0", "b": "2/0", "c": "2/1", "d": "3/0", "e": "4/0", "f": "2/2"}
    assert Counter((event["parcel_id"], headers["ce_id"].decode()) for event, headers, _ in found) == Counter(
        (parcel, f"{name}/{place}") for parcel, place in places.items()
    )


def test_the_lake_takes_added_partitions_in_from_their_first_record_and_again_none_after_a_restart(
    spark: SparkSession, settings: SparkSettings, registry: Registry, topics: Topics
) -> None:
    own = settings.model_copy(update={"lake": LakeSettings(trigger_seconds=0)})

    def lake() -> LakeTable:
        return LakeTable(spark, own, topics.dispatched, topics.catalog.schema(DISPATCHED), registry, Lifecycle())

    table = lake()
    query = table.start()
    topics.send_dispatches("a")
    query.processAllAvailable()
    topics.add_partitions(3)
    topics.send_dispatches("b", "c", partition=2)
    query.processAllAvailable()
    query.stop()
    table.close()
    topics.add_partitions(4)
    topics.send_dispatches("d", partition=3)
    topics.send_dispatches("e", partition=2)
    table = lake()
    query = table.start()
    query.processAllAvailable()
    query.stop()
    table.close()
    assert parcels(settings, table) == Counter("abcde")
    # The idle one has its mark, too.
    assert table.positions.next_offsets == {0: 1, 1: 0, 2: 3, 3: 1}

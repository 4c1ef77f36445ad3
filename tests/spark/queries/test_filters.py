"""Pipelines that leave records out, and one that is not there."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from contracts.definitions.catalog import Catalog
from contracts.definitions.pipelines import pipeline_files
from contracts.servers.registry import Registry
from spark import pipelines
from spark.derivation.derivation import Derivation
from spark.pipeline import Pipeline
from spark.queries.real_time import renewals
from spark.records.schemas import WriterSchemas
from spark.runtime.errors import PipelineUnfit, SinkRefused, TooFewSlots
from spark.runtime.internals.plans import FILTER, expressions, items
from spark.runtime.settings import SparkSettings
from tests.sample.pipelines import load
from tests.sample.pipelines.dispatches_enriched import LOOKUPS
from tests.spark import real_time_query
from tests.spark.examples import DISPATCHED, Topics, a_dispatch, body, framed, raw_frame
from tests.spark.live_query import Dimensions, events, running, wait_for

HEAVY = "parcels.dispatched.heavy.v1"


def large_vans(dispatches: DataFrame) -> DataFrame:
    return dispatches.where(F.col("van_seats") > 100)


@pytest.fixture
def dispatches(settings: SparkSettings, catalog: Catalog, registry: Registry) -> Iterator[Topics]:
    with Topics(settings, catalog, registry, names=(DISPATCHED, HEAVY)) as made:
        yield made


def _send(topics: Topics, count: int, **fields: Any) -> None:
    value = framed(topics.schema_ids[DISPATCHED], body(a_dispatch(**fields)))
    topics.send(*[value] * count)


def test_a_filter_may_ask_for_what_is_looked_up(
    spark: SparkSession, settings: SparkSettings, registry: Registry, published: Dimensions, dispatches: Topics
) -> None:
    pipeline = Pipeline("heavy_parcels", DISPATCHED, HEAVY, LOOKUPS, large_vans)
    with running(spark, settings, registry, dispatches.catalog, published, pipeline, mode="exactly-once") as query:
        for _ in range(3):  # the first batch makes the plan, and the others use it again
            _send(dispatches, 1)
            _send(dispatches, 1, van_id="N0")
            query.processAllAvailable()
    assert [headers["ce_id"][-2:] for _, headers, _ in events(dispatches, HEAVY)] == [b"/0", b"/2", b"/4"]


def test_a_filter_decodes_a_record_once(spark: SparkSession, catalog: Catalog) -> None:
    schema = catalog.schema(DISPATCHED)
    derivation = Derivation(spark, load("heavy_parcels"), catalog, 300)
    raw = raw_frame(spark, framed(7, body(a_dispatch())))
    rows = derivation.to_rows(WriterSchemas(f"{DISPATCHED}-value", schema, {7: schema}), [], {})(raw)
    node, filters = rows._jdf.queryExecution().optimizedPlan(), []
    while children := items(node.children()):
        filters += [node] if node.nodeName() == FILTER else []
        (node,) = children
    (found,) = filters
    assert not [each for each in expressions(found) if each.getClass().getSimpleName() == "AvroDataToCatalyst"]


def test_behind_a_filter_the_share_of_bad_records_is_one_of_all_that_came(
    spark: SparkSession, settings: SparkSettings, registry: Registry, published: Dimensions, dispatches: Topics
) -> None:
    few, many = [b"junk"] * 150, [b"junk"] * 600
    pipeline = load("heavy_parcels")
    # While nothing runs, so that they come in one batch.
    _send(dispatches, 850)
    dispatches.send(*few)
    with running(spark, settings, registry, dispatches.catalog, published, pipeline, mode="exactly-once") as query:
        query.processAllAvailable()
        assert len(dispatches.read(dispatches.dispatched.dead_letter_topic)) == 150
    dispatches.send(*many)
    with (
        running(spark, settings, registry, dispatches.catalog, published, pipeline, mode="exactly-once") as query,
        pytest.raises(StreamingQueryException, match="600 of 600 records .* are bad"),
    ):
        query.processAllAvailable()


@pytest.mark.long
def test_the_same_in_real_time_mode(
    spark: SparkSession, settings: SparkSettings, registry: Registry, published: Dimensions, dispatches: Topics
) -> None:
    _send(dispatches, 5_000)
    dispatches.send(*[b"junk"] * 150)
    _send(dispatches, 1, weight_grams=2000)
    pipeline = load("heavy_parcels")
    with real_time_query.running(spark, settings, registry, dispatches, published, pipeline, interval_seconds=5.0):
        wait_for("the one that is let through", lambda: len(events(dispatches, HEAVY)) == 1)
    assert len(dispatches.read(dispatches.dispatched.dead_letter_topic)) == 150
    with (
        pytest.raises(SinkRefused, match=r"are bad, more than the share of 0\.2"),
        real_time_query.running(
            spark, settings, registry, dispatches, published, pipeline, interval_seconds=5.0
        ) as thread,
    ):
        dispatches.send(*[b"junk"] * 2_000)
        thread.join(120)


def test_in_real_time_mode_a_partition_that_has_no_slot_is_not_left_unread(
    spark: SparkSession, settings: SparkSettings, registry: Registry, published: Dimensions, dispatches: Topics
) -> None:
    pipeline = load("heavy_parcels")
    with (
        # The tests' session asks for two slots.
        pytest.raises(TooFewSlots, match="3 partitions"),
        real_time_query.running(spark, settings, registry, dispatches, published, pipeline) as thread,
    ):
        _send(dispatches, 1, weight_grams=2000)
        wait_for("the first record", lambda: len(events(dispatches, HEAVY)) == 1)
        dispatches.add_partitions(3)
        thread.join(120)
        assert not thread.is_alive()


@pytest.mark.long
def test_a_dimension_that_changes_all_the_time_keeps_no_position_back_and_repeats_nothing(
    spark: SparkSession,
    settings: SparkSettings,
    registry: Registry,
    dimensions: Dimensions,
    dispatches: Topics,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where only an interval's end tells a position, a query that is renewed before it has none to go on from."""
    monkeypatch.setattr(renewals, "_LOOK_SECONDS", 1.0)
    pipeline = Pipeline("heavy_parcels", DISPATCHED, HEAVY, LOOKUPS, large_vans)
    _send(dispatches, 3)
    versions = itertools.count()

    def is_committed() -> bool:
        dimensions.publish("couriers", ("UA", f"United {next(versions)}"))
        # Over the first one, which is left out, only an interval's end moves the position.
        _send(dispatches, 1, van_id="N0")
        _send(dispatches, 1)
        return (real_time_query.positions(settings, dispatches, pipeline)[0] or 0) >= 3

    with (
        structlog.testing.capture_logs() as logs,
        real_time_query.running(spark, settings, registry, dispatches, dimensions, pipeline, interval_seconds=8.0),
    ):
        wait_for("an interval's end", is_committed)
        wait_for(
            "renewals", lambda: is_committed() and [line["event"] for line in logs].count("renewing the query") > 1
        )
    ids = [headers["ce_id"] for _, headers, _ in events(dispatches, HEAVY)]
    assert len(set(ids)) == len(ids) >= 3


def test_a_pipeline_that_is_not_there_or_fails_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PipelineUnfit, match=f"there is no pipeline mine; there are: {', '.join(pipeline_files())}"):
        pipelines.load("mine")
    with pytest.raises(PipelineUnfit, match="lake is the name of the lake's folders"):
        pipelines.load("lake")
    monkeypatch.setattr("spark.pipelines.pipeline_files", lambda: {"mine": Path("spark/pipelines/mine.py")})
    with pytest.raises(PipelineUnfit, match=r"spark/pipelines/mine\.py: ModuleNotFoundError"):
        pipelines.load("mine")

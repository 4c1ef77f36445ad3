"""What a function may be that ranks; each refusal says what to change."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from contracts.definitions.catalog import Catalog
from spark.derivation.stateful.ranking import Ranking
from spark.pipeline import Lookup, Pipeline
from spark.runtime.errors import PipelineUnfit
from tests.sample.pipelines.slowest_lines import slowest_lines

_ORDER = "late_mean_minutes", "origin", "destination"


def _ranking(spark: SparkSession, catalog: Catalog, function: Callable[[DataFrame], DataFrame]) -> Ranking:
    pipeline = Pipeline("slowest_lines", slowest_lines.source, slowest_lines.target, (), function)
    return Ranking(spark, pipeline, catalog, 300)


def _lines(events: DataFrame, *by: str) -> DataFrame:
    return events.groupBy(*(by or ("origin", "destination"))).agg(
        F.count("*").alias("dispatches"),
        F.avg("late_minutes").alias("late_mean_minutes"),
        F.max("dispatched_at").alias("last_dispatched_at"),
    )


def _by_window(events: DataFrame) -> DataFrame:
    made = events.groupBy(F.window("dispatched_at", "1 day"), "origin", "destination").agg(
        F.count("*").alias("dispatches"),
        F.avg("late_minutes").alias("late_mean_minutes"),
        F.max("dispatched_at").alias("last_dispatched_at"),
    )
    return made.orderBy("window", *_ORDER).limit(3)


def _computed(events: DataFrame) -> DataFrame:
    made = events.groupBy(F.upper("origin").alias("origin"), "destination").agg(
        F.count("*").alias("dispatches"),
        F.avg("late_minutes").alias("late_mean_minutes"),
        F.max("dispatched_at").alias("last_dispatched_at"),
    )
    return made.orderBy(*_ORDER).limit(3)


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (lambda events: _lines(events), "does not order its groups once and then take the first ones once"),
        (lambda events: _lines(events).orderBy(*_ORDER), "end with .orderBy"),
        (lambda events: _lines(events).limit(3), "end with .orderBy"),
        (lambda events: _lines(events).limit(3).orderBy(*_ORDER), "end with .orderBy"),
        (lambda events: _lines(events).orderBy(*_ORDER).limit(3).orderBy("origin"), "end with .orderBy"),
        (lambda events: _lines(events).sortWithinPartitions(*_ORDER).limit(3), "use orderBy"),
        (lambda events: _lines(events).orderBy(*_ORDER).limit(0), "takes 0 groups"),
        (lambda events: _lines(events).orderBy(*_ORDER).limit(7), "takes 7 groups, and the contract .* says places: 3"),
        (lambda events: _lines(events).orderBy("late_mean_minutes").limit(3), "add origin, destination to the end"),
        (lambda events: _lines(events).orderBy(*_ORDER[:2]).limit(3), "add destination to the end"),
        (_computed, r"add upper\(origin\) to the end of orderBy, computed before the grouping"),
        (_by_window, "groups by window, a window, and a ranking forgets no group"),
        (lambda events: _lines(events).where("dispatches > 1").orderBy(*_ORDER).limit(3), "filters its groups"),
        (lambda events: _lines(_lines(events).select("*")).orderBy(*_ORDER).limit(3), "fails with the fields"),
        (lambda events: events.orderBy("origin").limit(3), "makes no dispatches"),
        (
            lambda events: _lines(events.dropDuplicates(["parcel_id"])).orderBy(*_ORDER).limit(3),
            "has a step Deduplicate",
        ),
        (
            lambda events: _lines(events).withColumn("dispatches", F.lit("many")).orderBy(*_ORDER).limit(3),
            "makes dispatches a string",
        ),
        (
            lambda events: (
                _lines(events)
                .withColumn("late_mean_minutes", F.rand())
                .orderBy("late_mean_minutes", "origin", "destination")
                .limit(3)
            ),
            "slowest_lines",
        ),
    ],
)
def test_what_is_no_list_is_refused(
    spark: SparkSession, catalog: Catalog, function: Callable[[DataFrame], DataFrame], told: str
) -> None:
    with pytest.raises(PipelineUnfit, match=told):
        _ranking(spark, catalog, function)


def test_a_value_that_depends_on_the_order_of_the_records_is_refused(spark: SparkSession, catalog: Catalog) -> None:
    def function(events: DataFrame) -> DataFrame:
        made = _lines(events.withColumn("late_minutes", F.col("weight_grams") / 3))
        return made.orderBy(*_ORDER).limit(3)

    with pytest.raises(PipelineUnfit, match="may depend on the order of the records"):
        _ranking(spark, catalog, function)


def test_lookups_are_refused(spark: SparkSession, catalog: Catalog) -> None:
    lookup = Lookup("courier", dimension="couriers", by=("courier",), fields={"courier_name": "name"})
    pipeline = Pipeline("slowest_lines", slowest_lines.source, slowest_lines.target, (lookup,), slowest_lines.function)
    with pytest.raises(PipelineUnfit, match="has lookups and ranks"):
        Ranking(spark, pipeline, catalog, 300)


def test_another_order_goes_on_with_the_state_and_another_grouping_does_not(
    spark: SparkSession, catalog: Catalog
) -> None:
    plan = _ranking(spark, catalog, slowest_lines.function).plan
    assert plan == _ranking(spark, catalog, lambda events: _lines(events).orderBy(*_ORDER).limit(3)).plan
    filtered = _ranking(spark, catalog, lambda events: slowest_lines(events.where("weight_grams > 0")))
    assert plan != filtered.plan

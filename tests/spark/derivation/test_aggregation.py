"""What a function may be that aggregates; each refusal says what to change."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from contracts.definitions.catalog import Catalog
from spark.derivation.aggregation import Aggregation
from spark.pipeline import Lookup, Pipeline
from spark.pipelines.delays_by_origin import delays_by_origin
from spark.runtime.errors import PipelineUnfit

_BY = "departed_at", "15 minutes"


def _made(windows: DataFrame) -> DataFrame:
    """The target's fields of groups by `window` and `origin`; what a test is not about."""
    begin = F.date_format("window.start", "yyyy-MM-dd'T'HH:mm:ss'Z'")
    ends = F.col("window.start").alias("begins_at"), F.col("window.end").alias("ends_at")
    return windows.select("*", F.concat_ws("/", "origin", begin).alias("window_id"), *ends)


def _grouped(events: DataFrame, **others: Column) -> DataFrame:
    columns = {
        "departures": F.count("*"),
        "delay_mean_minutes": F.avg("departure_delay_minutes"),
        "delay_p95_minutes": F.percentile("departure_delay_minutes", 0.95),
    } | others
    return events.groupBy(F.window(*_BY), "origin").agg(*[each.alias(name) for name, each in columns.items()])


def _floating(events: DataFrame) -> DataFrame:
    return _made(_grouped(events, delay_mean_minutes=F.avg(F.col("distance_miles") / 3)))


def _first(events: DataFrame) -> DataFrame:
    return _made(_grouped(events, delay_mean_minutes=F.first("departure_delay_minutes").cast("double")))


def _approximate(events: DataFrame) -> DataFrame:
    found = F.percentile_approx("departure_delay_minutes", 0.95).cast("double")
    return _made(_grouped(events, delay_p95_minutes=found))


def _twice(events: DataFrame) -> DataFrame:
    again = _grouped(events).groupBy("window", "origin")
    sums = [F.sum(name).alias(name) for name in ("departures", "delay_mean_minutes", "delay_p95_minutes")]
    return _made(again.agg(*sums))


def _another_time(events: DataFrame) -> DataFrame:
    moved = events.withColumn("departed_at", F.col("scheduled_departure_at"))
    return _made(_grouped(moved))


def _no_window(events: DataFrame) -> DataFrame:
    windows = events.groupBy("origin").agg(F.count("*").alias("departures"))
    window = F.struct(F.lit(None).cast("timestamp").alias("start"), F.lit(None).cast("timestamp").alias("end"))
    zero = F.lit(0.0)
    return _made(windows.withColumns({"window": window, "delay_mean_minutes": zero, "delay_p95_minutes": zero}))


def _of_local_days(events: DataFrame) -> DataFrame:
    local = F.from_utc_timestamp("departed_at", "America/New_York")
    zero = F.lit(0.0)
    windows = events.groupBy(F.window(local, "1 day"), "origin").agg(F.count("*").alias("departures"))
    return _made(windows.withColumns({"delay_mean_minutes": zero, "delay_p95_minutes": zero}))


def _of_the_moment(events: DataFrame) -> DataFrame:
    return _made(_grouped(events.where(F.col("departed_at") < F.current_timestamp())))


def _row_by_row(events: DataFrame) -> DataFrame:
    return events


def _without_a_field(events: DataFrame) -> DataFrame:
    return _made(_grouped(events)).drop("departures")


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (_floating, "may depend on the order of the records.* sums of whole numbers or decimals"),
        (_first, "may depend on the order of the records"),
        (_approximate, "may depend on the order of the records.* percentile"),
        (_twice, "has 2 aggregations.* group once"),
        (_another_time, r"a window that is not over departed_at alone.* F\.window\(\"departed_at\", …\)"),
        (_of_local_days, "a window that is not over departed_at alone"),
        (_no_window, r"groups by no window, so its state would grow for ever: group by F\.window"),
        (_of_the_moment, "is another value each time"),
        (_row_by_row, "makes no window_id"),
        (_without_a_field, r"makes no departures, which flights\.departed\.delays\.v1 has"),
    ],
)
def test_a_function_that_cannot_be_run_again_is_refused(
    spark: SparkSession, catalog: Catalog, function: Callable[[DataFrame], DataFrame], told: str
) -> None:
    pipeline = Pipeline("delays_by_origin", delays_by_origin.source, delays_by_origin.target, (), function)
    with pytest.raises(PipelineUnfit, match=told):
        Aggregation(spark, pipeline, catalog, 300)


def test_a_lookup_is_refused(spark: SparkSession, catalog: Catalog) -> None:
    lookup = Lookup("airlines", dimension="airlines", by="carrier", fields={"airline_name": "name"})
    pipeline = Pipeline(
        "delays_by_origin", delays_by_origin.source, delays_by_origin.target, (lookup,), delays_by_origin.function
    )
    with pytest.raises(PipelineUnfit, match="has lookups and aggregates: look up in a pipeline of its own, before"):
        Aggregation(spark, pipeline, catalog, 300)


def test_a_filter_before_and_after_the_grouping_is_taken(spark: SparkSession, catalog: Catalog) -> None:
    def late_ones(events: DataFrame) -> DataFrame:
        return _made(_grouped(events.where(F.col("departure_delay_minutes") > 0)).where(F.col("departures") > 3))

    Aggregation(
        spark,
        Pipeline("delays_by_origin", delays_by_origin.source, delays_by_origin.target, (), late_ones),
        catalog,
        300,
    )

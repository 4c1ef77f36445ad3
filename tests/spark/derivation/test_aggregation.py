"""What a function may be that aggregates; each refusal says what to change."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from contracts.definitions.catalog import Catalog
from spark.derivation.stateful.aggregation import Aggregation
from spark.pipeline import Lookup, Pipeline
from spark.records.schemas import WriterSchemas
from spark.runtime.errors import PipelineUnfit
from tests.sample.pipelines.delays_by_origin import delays_by_origin
from tests.spark.examples import DISPATCHED, SCHEMA, a_dispatch, body, framed, raw_frame

SCHEMAS = WriterSchemas(f"{DISPATCHED}-value", SCHEMA, {7: SCHEMA})

_BY = "dispatched_at", "15 minutes"


def _made(windows: DataFrame) -> DataFrame:
    """The target's fields of groups by `window` and `origin`; what a test is not about."""
    begin = F.date_format("window.start", "yyyy-MM-dd'T'HH:mm:ss'Z'")
    ends = F.col("window.start").alias("begins_at"), F.col("window.end").alias("ends_at")
    return windows.select("*", F.concat_ws("/", "origin", begin).alias("window_id"), *ends)


def _grouped(events: DataFrame, by: Column | None = None, **others: Column) -> DataFrame:
    columns = {
        "dispatches": F.count("*"),
        "delay_mean_minutes": F.avg("late_minutes"),
        "delay_p95_minutes": F.percentile("late_minutes", 0.95),
    } | others
    window = F.window(*_BY) if by is None else by
    return events.groupBy(window, "origin").agg(*[each.alias(name) for name, each in columns.items()])


def _aggregation(spark: SparkSession, catalog: Catalog, function: Callable[[DataFrame], DataFrame]) -> Aggregation:
    pipeline = Pipeline("delays_by_origin", delays_by_origin.source, delays_by_origin.target, (), function)
    return Aggregation(spark, pipeline, catalog, 300)


def _floating(events: DataFrame) -> DataFrame:
    return _made(_grouped(events, delay_mean_minutes=F.avg(F.col("weight_grams") / 3)))


def _first(events: DataFrame) -> DataFrame:
    return _made(_grouped(events, delay_mean_minutes=F.first("late_minutes").cast("double")))


def _approximate(events: DataFrame) -> DataFrame:
    found = F.percentile_approx("late_minutes", 0.95).cast("double")
    return _made(_grouped(events, delay_p95_minutes=found))


def _null_where_it_overflows(events: DataFrame) -> DataFrame:
    return _made(_grouped(events, dispatches=F.try_sum("late_minutes")))


def _mean_that_is_null_where_it_overflows(events: DataFrame) -> DataFrame:
    return _made(_grouped(events, delay_mean_minutes=F.try_avg("late_minutes")))


def _long_decimals(digits: int) -> Callable[[DataFrame], DataFrame]:
    def function(events: DataFrame) -> DataFrame:
        delay = F.col("late_minutes").cast(f"decimal({digits}, 2)")
        return _made(
            _grouped(events, delay_mean_minutes=F.avg(delay).cast("double"), dispatches=F.sum(delay).cast("long"))
        )

    return function


def _greatest_of_equal_texts(events: DataFrame) -> DataFrame:
    origin = F.struct(F.collate("origin", "UTF8_LCASE").alias("origin"))
    return _made(_grouped(events, dispatches=F.length(F.max(origin)["origin"]).cast("long")))


def _by_equal_texts(events: DataFrame) -> DataFrame:
    made = _made(_grouped(events.withColumn("origin", F.collate("origin", "UTF8_LCASE"))))
    return made.withColumns({name: F.collate(name, "UTF8_BINARY") for name in ("origin", "window_id")})


def _of_pythons_clock(events: DataFrame) -> DataFrame:
    return _made(_grouped(events.where(F.col("dispatched_at") < F.lit(datetime.now(UTC)))))


def _twice(events: DataFrame) -> DataFrame:
    again = _grouped(events).groupBy("window", "origin")
    sums = [F.sum(name).alias(name) for name in ("dispatches", "delay_mean_minutes", "delay_p95_minutes")]
    return _made(again.agg(*sums))


def _another_time(events: DataFrame) -> DataFrame:
    moved = events.withColumn("dispatched_at", F.col("due_at"))
    return _made(_grouped(moved))


def _no_window(events: DataFrame) -> DataFrame:
    windows = events.groupBy("origin").agg(F.count("*").alias("dispatches"))
    window = F.struct(F.lit(None).cast("timestamp").alias("start"), F.lit(None).cast("timestamp").alias("end"))
    zero = F.lit(0.0)
    return _made(windows.withColumns({"window": window, "delay_mean_minutes": zero, "delay_p95_minutes": zero}))


def _of_local_days(events: DataFrame) -> DataFrame:
    local = F.from_utc_timestamp("dispatched_at", "America/New_York")
    zero = F.lit(0.0)
    windows = events.groupBy(F.window(local, "1 day"), "origin").agg(F.count("*").alias("dispatches"))
    return _made(windows.withColumns({"delay_mean_minutes": zero, "delay_p95_minutes": zero}))


def _of_a_field_beside_the_key(events: DataFrame) -> DataFrame:
    windows = events.groupBy(F.window("dispatched_at", "15 minutes"), "origin", "destination").agg(
        F.count("*").alias("dispatches")
    )
    zero = F.lit(0.0)
    return _made(windows.withColumns({"delay_mean_minutes": zero, "delay_p95_minutes": zero}))


def _of_a_key_without_the_window(events: DataFrame) -> DataFrame:
    return _made(_grouped(events)).withColumn("window_id", F.col("origin"))


def _of_the_moment(events: DataFrame) -> DataFrame:
    return _made(_grouped(events.where(F.col("dispatched_at") < F.current_timestamp())))


def _row_by_row(events: DataFrame) -> DataFrame:
    return events


def _without_a_field(events: DataFrame) -> DataFrame:
    return _made(_grouped(events)).drop("dispatches")


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (_floating, "may depend on the order of the records.* sums of whole numbers or decimals"),
        (_first, "may depend on the order of the records"),
        (_approximate, "may depend on the order of the records.* percentile"),
        (_null_where_it_overflows, "is null where a sum overflows on its way.* use sum"),
        (_mean_that_is_null_where_it_overflows, "is null where a sum overflows on its way"),
        (_long_decimals(29), "is null where a sum overflows on its way.* a decimal of 28 digits at most"),
        (_greatest_of_equal_texts, "is of texts whose collation takes different ones for equal"),
        (_by_equal_texts, "groups by a text whose collation takes different ones for equal"),
        (_of_pythons_clock, "delays_by_origin makes something else each time that it is called"),
        (_twice, "has 2 aggregations.* group once"),
        (_another_time, r"a window that is not over dispatched_at alone.* F\.window\(\"dispatched_at\", …\)"),
        (_of_local_days, "a window that is not over dispatched_at alone"),
        (_no_window, r"groups by no window, so its state would grow for ever: group by F\.window"),
        (_of_a_field_beside_the_key, "groups by destination, too, and the key window_id is not made from it"),
        (_of_a_key_without_the_window, "groups by dispatched_at, too, and the key window_id is not made from it"),
        (_of_the_moment, "is another value each time"),
        (_row_by_row, "makes no window_id"),
        (_without_a_field, r"makes no dispatches, which parcels\.dispatched\.delays\.v1 has"),
    ],
)
def test_a_function_that_cannot_be_run_again_is_refused(
    spark: SparkSession, catalog: Catalog, function: Callable[[DataFrame], DataFrame], told: str
) -> None:
    with pytest.raises(PipelineUnfit, match=told):
        _aggregation(spark, catalog, function)


def test_a_lookup_is_refused(spark: SparkSession, catalog: Catalog) -> None:
    lookup = Lookup("couriers", dimension="couriers", by="courier", fields={"courier_name": "name"})
    pipeline = Pipeline(
        "delays_by_origin", delays_by_origin.source, delays_by_origin.target, (lookup,), delays_by_origin.function
    )
    with pytest.raises(PipelineUnfit, match="has lookups and aggregates, which it can't: leave the lookups out"):
        Aggregation(spark, pipeline, catalog, 300)


def test_a_filter_before_the_grouping_is_taken_and_one_behind_it_refused(spark: SparkSession, catalog: Catalog) -> None:
    def late_ones(events: DataFrame) -> DataFrame:
        return _made(_grouped(events.where(F.col("late_minutes") > 0)))

    def large_ones(events: DataFrame) -> DataFrame:
        return _made(_grouped(events).where(F.col("dispatches") > 3))

    _aggregation(spark, catalog, late_ones)
    with pytest.raises(PipelineUnfit, match="filters its groups.*a field that says whether"):
        _aggregation(spark, catalog, large_ones)


@pytest.mark.parametrize(
    ("length", "slide", "start"),
    [(15, 15, 0), (60, 5, 0), (90, 60, 0), (90, 60, 15), (90, 60, 30), (90, 60, 45), (50, 40, 20), (7, 5, 3)],
)
def test_of_an_event_whose_windows_are_all_over_one_row_is_late_and_names_them(
    spark: SparkSession, catalog: Catalog, length: int, slide: int, start: int
) -> None:
    def overlapping(events: DataFrame) -> DataFrame:
        return _made(
            _grouped(events, F.window("dispatched_at", *(f"{each} minutes" for each in (length, slide, start))))
        )

    minutes = range(0, 3 * length, 4)
    rows = _aggregation(spark, catalog, overlapping).aside(DISPATCHED, SCHEMAS, 10**13)
    epoch = datetime.fromtimestamp(0, UTC)
    values = [framed(7, body(a_dispatch(dispatched_at=epoch + timedelta(minutes=each)))) for each in minutes]
    late = rows(raw_frame(spark, *values)).select("offset", "missed").orderBy("offset")
    found = late.toArrow().to_pylist()
    assert [row["offset"] for row in found] == list(range(len(minutes)))
    for row, minute in zip(found, minutes, strict=True):
        ends = [begins + length for begins in range(start - 20 * slide, minute + 1, slide) if minute < begins + length]
        told = [datetime.fromisoformat(row["missed"][name]) for name in ("first", "last")]
        assert told == [epoch + timedelta(minutes=each) for each in (min(ends), max(ends))]


def test_decimals_whose_sum_has_room_are_taken(spark: SparkSession, catalog: Catalog) -> None:
    _aggregation(spark, catalog, _long_decimals(28))


def test_another_function_of_the_same_type_that_is_needed_is_another_state(
    spark: SparkSession, catalog: Catalog
) -> None:
    """The optimizer leaves out the one that is not, and Spark would take the least values that it kept for the greatest."""

    def needed(name: str, *, times: int) -> Callable[[DataFrame], DataFrame]:
        def function(events: DataFrame) -> DataFrame:
            both = {"most": F.max("late_minutes"), "least": F.min("late_minutes")}
            made = _made(_grouped(events, **both)).withColumn("dispatches", F.col("dispatches") * times)
            return made.withColumn("delay_mean_minutes", F.col(name).cast("double")).drop(*both)

        return function

    of_most, of_more, of_least = (
        _aggregation(spark, catalog, function).plan
        for function in (needed("most", times=1), needed("most", times=2), needed("least", times=1))
    )
    assert of_most == of_more
    assert of_most != of_least


def test_a_lambda_function_of_its_arguments_in_another_order_is_another_state(
    spark: SparkSession, catalog: Catalog
) -> None:
    def filtered(of: Callable[[Column, Column], Column]) -> Callable[[DataFrame], DataFrame]:
        # Two ways to write `of` that Spark has one text for.
        both = F.array(F.col("late_minutes"), F.lit(1))
        return lambda events: _made(_grouped(events.where(F.aggregate(both, F.lit(0), of) > 0)))

    minus, again, turned = (
        _aggregation(spark, catalog, filtered(of)).plan
        for of in (lambda sum_, each: sum_ - each, lambda a, b: a - b, lambda sum_, each: each - sum_)
    )
    assert minus == again
    assert minus != turned

"""What a function may be that aggregates the records of two topics; each refusal says what to change."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from contracts.definitions.catalog import Catalog
from spark.derivation.stateful.aggregation import Aggregation
from spark.records.schemas import WriterSchemas
from spark.runtime.errors import PipelineUnfit
from tests.sample.pipelines.losses_by_origin import losses_by_origin
from tests.spark.examples import DISPATCHED, LOST, a_dispatch, a_loss, body, framed, raw_frame

Function = Callable[[DataFrame, DataFrame], DataFrame]


def _left(dispatches: DataFrame, at: str = "dispatched_at") -> DataFrame:
    return dispatches.select(F.col(at).alias("at"), "origin", F.lit(0).alias("lost"), "late_minutes")


def _stayed(losses: DataFrame) -> DataFrame:
    return losses.select(F.col("due_at").alias("at"), "origin", F.lit(1).alias("lost"))


def _made(both: DataFrame, *by: str, length: str = "1 hour", slide: str = "15 minutes") -> DataFrame:
    windows = both.groupBy(F.window("at", length, slide), "origin", *by).agg(
        F.count("late_minutes").alias("dispatches"),
        F.sum("lost").alias("losses"),
        F.avg("lost").alias("lost_share"),
        F.avg("late_minutes").alias("delay_mean_minutes"),
        F.percentile("late_minutes", 0.95).alias("delay_p95_minutes"),
    )
    return _named(windows)


def _named(windows: DataFrame) -> DataFrame:
    begin = F.date_format("window.start", "yyyy-MM-dd'T'HH:mm:ss'Z'")
    ends = F.col("window.start").alias("begins_at"), F.col("window.end").alias("ends_at")
    return windows.select("*", F.concat_ws("/", "origin", begin).alias("window_id"), *ends)


def _both(left: DataFrame, stayed: DataFrame) -> DataFrame:
    return left.unionByName(stayed, allowMissingColumns=True)


def _aggregation(spark: SparkSession, catalog: Catalog, function: Function) -> Aggregation:
    return Aggregation(spark, dataclasses.replace(losses_by_origin, function=function), catalog, 300)


def _one_alone(dispatches: DataFrame, losses: DataFrame) -> DataFrame:
    return _made(_left(dispatches))


def _one_twice(dispatches: DataFrame, losses: DataFrame) -> DataFrame:
    return _made(_both(_left(dispatches), _left(dispatches)))


def _in_another_order(dispatches: DataFrame, losses: DataFrame) -> DataFrame:
    return _made(_both(_stayed(losses), _left(dispatches)))


def _one_a_second_time(dispatches: DataFrame, losses: DataFrame) -> DataFrame:
    return _made(_both(_both(_left(dispatches), _stayed(losses)), _left(dispatches)))


def _joined(dispatches: DataFrame, losses: DataFrame) -> DataFrame:
    beside = losses.select("parcel_id")
    return _made(_both(_left(dispatches.join(beside, "parcel_id")), _stayed(losses)))


def _joined_with_itself(dispatches: DataFrame, losses: DataFrame) -> DataFrame:
    return _made(_both(_left(dispatches), _stayed(losses.join(losses.select("parcel_id"), "parcel_id"))))


def _groups_united(dispatches: DataFrame, losses: DataFrame) -> DataFrame:
    nothing = F.lit(None).cast("int").alias("late_minutes")
    return _made(_left(dispatches)).union(_made(_stayed(losses).select("*", nothing)))


def _another_time_of_the_first(dispatches: DataFrame, losses: DataFrame) -> DataFrame:
    return _made(_both(_left(dispatches, "due_at"), _stayed(losses)))


def _another_time_of_the_second(dispatches: DataFrame, losses: DataFrame) -> DataFrame:
    day = losses.select(F.col("posted_on").cast("timestamp").alias("at"), "origin", F.lit(1).alias("lost"))
    return _made(_both(_left(dispatches), day))


def _computed_time(dispatches: DataFrame, losses: DataFrame) -> DataFrame:
    later = _stayed(losses).withColumn("at", F.col("at") + F.expr("INTERVAL 1 HOUR"))
    return _made(_both(_left(dispatches), later))


def _by_the_topic_beside_the_key(dispatches: DataFrame, losses: DataFrame) -> DataFrame:
    nothing = F.lit(None).cast("int").alias("late_minutes")
    kinds = [
        frame.withColumn("kind", F.lit(kind))
        for frame, kind in ((_left(dispatches), "left"), (_stayed(losses).select("*", nothing), "stayed"))
    ]
    return _made(kinds[0].unionByName(kinds[1]), "kind")


def _sessions(dispatches: DataFrame, losses: DataFrame) -> DataFrame:
    both = _both(_left(dispatches), _stayed(losses))
    windows = both.groupBy(F.session_window("at", "1 hour").alias("window"), "origin").agg(
        F.count("late_minutes").alias("dispatches"),
        F.sum("lost").alias("losses"),
        F.avg("lost").alias("lost_share"),
        F.avg("late_minutes").alias("delay_mean_minutes"),
        F.percentile("late_minutes", 0.95).alias("delay_p95_minutes"),
    )
    return _named(windows)


def _filtered_groups(dispatches: DataFrame, losses: DataFrame) -> DataFrame:
    return _made(_both(_left(dispatches), _stayed(losses))).where(F.col("losses") > 0)


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (_one_alone, r"reads parcels\.dispatched\.v1 and parcels\.lost\.v1, and has 0 unions.* once by unionByName"),
        (_in_another_order, "has a union whose inputs are in another order than the function's parameters"),
        (_one_twice, "has a union whose inputs are not one of each topic"),
        (_one_a_second_time, "has a union whose inputs are not one of each topic|has 2 unions"),
        (_joined, "has a union whose inputs are not one of each topic"),
        (_joined_with_itself, "has two inputs, and the contract"),
        (_groups_united, "has a grouping before its union"),
        (
            _another_time_of_the_first,
            r"not over dispatched_at alone, .* contract of parcels\.dispatched\.v1.* choose dispatched_at of parcels\.dispatched\.v1 as it is",
        ),
        (
            _another_time_of_the_second,
            r"not over due_at alone, .* contract of parcels\.lost\.v1.* choose due_at of parcels\.lost\.v1 as it is",
        ),
        (_computed_time, "not over due_at alone"),
        (_by_the_topic_beside_the_key, "groups by kind, too, and the key window_id is not made from it"),
        (_sessions, "groups the records of two topics by sessions"),
        (_filtered_groups, "filters its groups"),
    ],
)
def test_a_function_that_does_not_unite_two_topics_as_it_can_run_is_refused(
    spark: SparkSession, catalog: Catalog, function: Function, told: str
) -> None:
    with pytest.raises(PipelineUnfit, match=told):
        _aggregation(spark, catalog, function)


def test_each_input_may_filter_and_compute_under_names_of_its_own(spark: SparkSession, catalog: Catalog) -> None:
    def function(dispatches: DataFrame, losses: DataFrame) -> DataFrame:
        left = _left(dispatches.where("weight_grams > 100")).withColumn("late_minutes", F.col("late_minutes") + 0)
        stayed = losses.withColumnRenamed("due_at", "when").where("origin != 'X'").withColumnRenamed("when", "due_at")
        return _made(_both(left, _stayed(stayed)).where("origin != 'Y'"))

    _aggregation(spark, catalog, function)


def test_two_of_a_kind_may_be_united_by_place(spark: SparkSession, catalog: Catalog) -> None:
    def function(dispatches: DataFrame, losses: DataFrame) -> DataFrame:
        stayed = _stayed(losses).select("*", F.lit(None).cast("int"))
        return _made(_left(dispatches).union(stayed))

    _aggregation(spark, catalog, function)


def test_what_either_input_is_made_of_is_part_of_the_plan(spark: SparkSession, catalog: Catalog) -> None:
    def filtered(condition: str) -> Function:
        return lambda dispatches, losses: _made(_both(_left(dispatches), _stayed(losses.where(condition))))

    own, other, same, others = (
        _aggregation(spark, catalog, filtered(condition)).plan
        for condition in ("origin = 'X'", "origin = 'Y'", "origin = 'X'", "destination = 'X'")
    )
    assert own == same
    assert len({own, other, others}) == 3


@pytest.mark.parametrize(
    ("length", "slide"), [("1 hour", "5 minutes"), ("1 hour", "1 hour"), ("15 minutes", "15 minutes")]
)
def test_of_either_topic_one_letter_tells_of_all_windows_that_are_over(
    spark: SparkSession, catalog: Catalog, length: str, slide: str
) -> None:
    def function(dispatches: DataFrame, losses: DataFrame) -> DataFrame:
        return _made(_both(_left(dispatches), _stayed(losses)).where("origin != 'NONE'"), length=length, slide=slide)

    derivation = _aggregation(spark, catalog, function)
    epoch, minutes = datetime.fromtimestamp(0, UTC), [3, 50, 61, 125]
    times = [epoch + timedelta(minutes=each) for each in minutes]
    bodies = {
        DISPATCHED: [body(a_dispatch(dispatched_at=at)) for at in times] + [body(a_dispatch(origin="NONE"))],
        LOST: [body(a_loss(due_at=at), catalog.schema(LOST)) for at in times]
        + [body(a_loss(origin="NONE"), catalog.schema(LOST))],
    }
    found = {}
    for topic, values in bodies.items():
        schemas = WriterSchemas(f"{topic}-value", catalog.schema(topic), {7: catalog.schema(topic)})
        raw = raw_frame(spark, *[framed(7, each) for each in values], b"junk")
        rows = derivation.aside(topic, schemas, 10**13)(raw).select(
            "offset", "reason", F.to_json("missed").alias("missed")
        )
        found[topic] = rows.orderBy("offset").toArrow().to_pylist()
    assert found[DISPATCHED] == found[LOST]
    assert [(row["offset"], row["reason"]) for row in found[LOST][:-1]] == [(each, "Late") for each in range(4)]
    assert (found[LOST][-1]["offset"], found[LOST][-1]["missed"]) == (5, None)

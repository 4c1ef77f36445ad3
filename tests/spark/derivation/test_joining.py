"""What a function may be that joins; each refusal says what to change."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable

import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from contracts.definitions.catalog import Catalog
from spark.derivation.fitness import check
from spark.derivation.stateful.aggregation import Aggregation
from spark.derivation.stateful.joining import Joining
from spark.pipeline import Lookup, pipeline
from spark.runtime.errors import PipelineUnfit
from tests.sample import topics
from tests.sample.pipelines.delays_by_origin import delays_by_origin
from tests.sample.pipelines.parcel_trips import parcel_trips

Function = Callable[[DataFrame, DataFrame], DataFrame]


def _theirs(deliveries: DataFrame) -> DataFrame:
    return deliveries.select(F.col("parcel_id").alias("of"), "delivered_at", "delivered_late_minutes")


def _within(*bounds: str) -> Column:
    condition = F.col("parcel_id") == F.col("of")
    for bound in bounds:
        condition = condition & F.expr(bound)
    return condition


_AFTER, _SOON = "delivered_at >= dispatched_at", "delivered_at <= dispatched_at + INTERVAL 20 HOURS"


def _joined(how: str, *bounds: str) -> Function:
    return lambda ours, deliveries: ours.join(_theirs(deliveries), _within(*bounds), how=how)


def _swapped(ours: DataFrame, deliveries: DataFrame) -> DataFrame:
    return _theirs(deliveries).join(ours, _within(_AFTER, _SOON), how="inner")


def _by_no_field(ours: DataFrame, deliveries: DataFrame) -> DataFrame:
    return ours.join(_theirs(deliveries), F.expr(f"{_AFTER} AND {_SOON}"), how="inner")


def _by_other_times(ours: DataFrame, deliveries: DataFrame) -> DataFrame:
    bounds = "delivered_at >= due_at", "delivered_at <= due_at + INTERVAL 20 HOURS"
    return ours.join(_theirs(deliveries), _within(*bounds), how="left_outer")


def _twice(ours: DataFrame, deliveries: DataFrame) -> DataFrame:
    again = deliveries.select(F.col("parcel_id").alias("again"))
    return _joined("inner", _AFTER, _SOON)(ours, deliveries).join(again, F.expr("parcel_id = again"), how="inner")


def _counted(ours: DataFrame, deliveries: DataFrame) -> DataFrame:
    return _joined("inner", _AFTER, _SOON)(ours, deliveries).dropDuplicates(["parcel_id"])


def _at_midnight(ours: DataFrame, deliveries: DataFrame) -> DataFrame:
    by_day = "delivered_at = date_trunc('DAY', dispatched_at)"
    bounds = "delivered_at <= dispatched_at", "delivered_at >= dispatched_at - INTERVAL 24 HOURS"
    return _joined("left_outer", by_day, *bounds)(ours, deliveries)


def _of_the_moment(ours: DataFrame, deliveries: DataFrame) -> DataFrame:
    return _joined("inner", _AFTER, _SOON)(ours, deliveries).where("dispatched_at < current_timestamp()")


def _of_pythons_chance(ours: DataFrame, deliveries: DataFrame) -> DataFrame:
    return _joined("inner", _AFTER, _SOON)(
        ours, deliveries.where(F.col("weight_grams") % 1000 < random.random() * 1000)
    )


def _times_twice(ours: DataFrame, deliveries: DataFrame) -> DataFrame:
    more = ours.withColumn("left_at", F.col("dispatched_at"))
    joined = _joined("inner", _AFTER, _SOON)(more, deliveries)
    return joined.withColumn("late_minutes", F.minute("left_at"))


def _one_frame(ours: DataFrame, deliveries: DataFrame) -> DataFrame:
    nothing = F.lit(None)
    return ours.withColumns({"delivered_at": nothing.cast("timestamp"), "delivered_late_minutes": nothing.cast("int")})


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (_joined("inner"), r"dispatched_at and delivered_at, so its state would grow for ever: .*INTERVAL 20 HOURS"),
        (_joined("inner", _AFTER), "state would grow for ever"),
        (_joined("left_outer", _SOON), "state would grow for ever"),
        (_by_other_times, "state would grow for ever"),
        (_joined("full_outer", _AFTER, _SOON), "joins FullOuter.* use how=inner or how=left"),
        (_joined("right_outer", _AFTER, _SOON), "joins RightOuter"),
        (_swapped, "the two frames in another order"),
        (_by_no_field, "joins by no field that is equal on both sides"),
        (_twice, "has 2 joins.* join the two frames once"),
        (_one_frame, "has 0 joins"),
        (_counted, "has a step Deduplicate, which a join can't have beside it"),
        (_of_the_moment, "is another value each time"),
        (_of_pythons_chance, "parcel_trips makes something else each time that it is called"),
        (
            _at_midnight,
            r"by the time of an event, dispatched_at or delivered_at, .* F.date_trunc\(.HOUR., .dispatched_at",
        ),
        (_times_twice, "has the time of the events of parcels.dispatched.v1, dispatched_at, 2 times before the join"),
    ],
)
def test_a_function_whose_state_would_not_end_or_that_cannot_be_run_again_is_refused(
    spark: SparkSession, catalog: Catalog, function: Function, told: str
) -> None:
    with pytest.raises(PipelineUnfit, match=told):
        Joining(spark, dataclasses.replace(parcel_trips, function=function), catalog, 300)


def test_the_times_of_both_events_may_be_equal(spark: SparkSession, catalog: Catalog) -> None:
    at_once = _joined("inner", "delivered_at = dispatched_at", _AFTER, _SOON)
    Joining(spark, dataclasses.replace(parcel_trips, function=at_once), catalog, 300)


def test_a_lookup_is_refused(spark: SparkSession, catalog: Catalog) -> None:
    lookup = Lookup("couriers", dimension="couriers", by="courier", fields={"courier_name": "name"})
    with pytest.raises(PipelineUnfit, match="has lookups and joins, which it can't: leave the lookups out"):
        Joining(spark, dataclasses.replace(parcel_trips, lookups=(lookup,)), catalog, 300)


def test_what_the_contract_does_not_say_is_refused(spark: SparkSession, catalog: Catalog) -> None:
    one = dataclasses.replace(parcel_trips, second=None)
    with pytest.raises(PipelineUnfit, match="is not derived from it by its contract"):
        Joining(spark, one, catalog, 300)
    two = dataclasses.replace(delays_by_origin, second=parcel_trips.second)
    with pytest.raises(PipelineUnfit, match="is not derived from both by its contract"):
        Aggregation(spark, two, catalog, 300)
    with pytest.raises(PipelineUnfit, match="parcel_trips joins, and what it makes of one record depends on others"):
        check(spark, parcel_trips, catalog)


def test_parameters_are_in_the_order_of_the_topics() -> None:
    with pytest.raises(TypeError, match="or the two that it joins, by the names of its parameters, in their order"):

        @pipeline(
            dispatches=topics.PARCELS_DISPATCHED,
            deliveries=topics.PARCELS_DELIVERED,
            writes=topics.PARCELS_DISPATCHED_TRIPS,
        )
        def swapped(deliveries: DataFrame, dispatches: DataFrame) -> DataFrame:
            return dispatches.join(deliveries, "parcel_id", how="inner")


def test_what_the_state_keeps_is_told_by_the_plan_and_what_comes_behind_is_not(
    spark: SparkSession, catalog: Catalog
) -> None:
    def plan(function: Function) -> str:
        return Joining(spark, dataclasses.replace(parcel_trips, function=function), catalog, 300).plan

    def later(ours: DataFrame, deliveries: DataFrame) -> DataFrame:
        made = parcel_trips.function(ours, deliveries)
        return made.withColumn("late_minutes", F.col("late_minutes") + 1).where("late_minutes > 0")

    def heavy(ours: DataFrame, deliveries: DataFrame) -> DataFrame:
        return parcel_trips.function(ours.where("late_minutes > 0"), deliveries)

    def longer(ours: DataFrame, deliveries: DataFrame) -> DataFrame:
        return _joined("left_outer", _AFTER, "delivered_at <= dispatched_at + INTERVAL 30 HOURS")(ours, deliveries)

    def more(ours: DataFrame, deliveries: DataFrame) -> DataFrame:
        return parcel_trips.function(ours, deliveries).withColumn("late_minutes", F.col("weight_grams"))

    same = plan(parcel_trips.function)
    assert plan(later) == same
    assert len({same, plan(heavy), plan(longer), plan(more)}) == 4


def test_the_plan_tells_two_columns_of_one_name_apart(spark: SparkSession, catalog: Catalog) -> None:
    def plan(function: Function) -> str:
        return Joining(spark, dataclasses.replace(parcel_trips, function=function), catalog, 300).plan

    def within(sides: Callable[[DataFrame, DataFrame], tuple[DataFrame, DataFrame]]) -> Function:
        """Pairs of which the first one of the `sides` has the earlier time."""

        def function(ours: DataFrame, deliveries: DataFrame) -> DataFrame:
            mine = ours.withColumnRenamed("dispatched_at", "at")
            theirs = _theirs(deliveries).withColumnRenamed("delivered_at", "at")
            early, late = sides(mine, theirs)
            soon = late["at"] <= early["at"] + F.expr("INTERVAL 20 HOURS")
            condition = (mine["parcel_id"] == theirs["of"]) & (early["at"] <= late["at"]) & soon
            joined = mine.join(theirs, condition, how="inner")
            times = mine["at"].alias("dispatched_at"), theirs["at"].alias("delivered_at")
            return joined.select(*[each for each in joined.columns if each != "at"], *times)

        return function

    after, before = within(lambda mine, theirs: (mine, theirs)), within(lambda mine, theirs: (theirs, mine))
    assert plan(after) == plan(after)
    assert plan(after) != plan(before)


def test_the_plan_tells_which_field_is_the_time_of_the_events(spark: SparkSession, catalog: Catalog) -> None:
    def function(ours: DataFrame, deliveries: DataFrame) -> DataFrame:
        theirs = deliveries.select(
            F.col("parcel_id").alias("of"), "delivered_at", "expected_at", "delivered_late_minutes"
        )
        bounds = [each.replace("delivered_at", "expected_at") for each in (_AFTER, _SOON)]
        return ours.join(theirs, _within(_AFTER, _SOON, *bounds), how="inner")

    def plan(catalog: Catalog) -> str:
        return Joining(spark, dataclasses.replace(parcel_trips, function=function), catalog, 300).plan

    name = str(parcel_trips.second)
    expected = catalog.topic(name).model_copy(update={"occurred_at": "expected_at"})
    other = dataclasses.replace(catalog, topics={**catalog.topics, name: expected})
    assert plan(catalog) != plan(other)

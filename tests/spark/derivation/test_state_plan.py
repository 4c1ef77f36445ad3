"""Which changes of a source's contract a state survives."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from contracts.definitions.catalog import Catalog
from spark.derivation.stateful.kinds import stateful
from spark.pipeline import Pipeline
from tests.sample.pipelines.delays_by_origin import delays_by_origin
from tests.sample.pipelines.dispatches_once import dispatches_once
from tests.sample.pipelines.parcel_trips import parcel_trips
from tests.sample.pipelines.rounds_of_vans import rounds_of_vans
from tests.spark.examples import DISPATCHED

Change = Callable[[dict[str, Any]], object]

PIPELINES = {
    each.name: (each, used)
    for each, used in (
        (delays_by_origin, "origin"),
        (rounds_of_vans, "van_id"),
        (dispatches_once, "parcel_id"),
        (parcel_trips, "parcel_id"),
    )
}
"""With a field, beside the time, that the state depends on."""

of_each = pytest.mark.parametrize("name", PIPELINES)


def _changed(
    catalog: Catalog, change: Change, compatibility: str = "BACKWARD", before: tuple[str, ...] = ()
) -> Catalog:
    """The catalog with another schema of dispatches, behind those `before`, in a topic of that compatibility."""
    contract = catalog.topic(DISPATCHED).model_copy(update={"compatibility": compatibility})
    schema = catalog.parsed_schema(DISPATCHED)
    change(schema)
    schemas = {**catalog._schemas, DISPATCHED: (*before, json.dumps(schema))}
    return dataclasses.replace(catalog, topics={**catalog.topics, DISPATCHED: contract}, _schemas=schemas)


def _plan(spark: SparkSession, pipeline: Pipeline, catalog: Catalog) -> str:
    return stateful(spark, pipeline, catalog, 300).plan


def _more(schema: dict[str, Any]) -> None:
    # In front, so that every other column has another place.
    schema["fields"].insert(0, {"name": "gift_note", "type": ["null", "string"], "default": None, "doc": "If any."})


def _described(schema: dict[str, Any]) -> None:
    schema["doc"] = "Otherwise."
    for field in schema["fields"]:
        field["doc"] = "Otherwise."


def _of(name: str, **parts: Any) -> Change:
    def change(schema: dict[str, Any]) -> None:
        for field in schema["fields"]:
            if field["name"] == name:
                field |= parts

    return change


@of_each
def test_it_survives_a_field_more_a_description_and_what_it_has_no_use_for(
    name: str, spark: SparkSession, catalog: Catalog
) -> None:
    pipeline, _ = PIPELINES[name]
    before = _plan(spark, pipeline, catalog)
    for change in (_more, _described, _of("posted_on", aliases=["handed_in_on"])):
        assert _plan(spark, pipeline, _changed(catalog, change)) == before


@of_each
def test_it_does_not_survive_that_what_it_depends_on_is_read_otherwise(
    name: str, spark: SparkSession, catalog: Catalog
) -> None:
    pipeline, used = PIPELINES[name]
    before = _plan(spark, pipeline, catalog)
    for field in (used, "dispatched_at"):
        assert _plan(spark, pipeline, _changed(catalog, _of(field, aliases=["another"]))) != before


@of_each
def test_where_records_of_before_may_be_bad_ones_it_survives_no_change_but_of_words(
    name: str, spark: SparkSession, catalog: Catalog
) -> None:
    pipeline, _ = PIPELINES[name]
    before = _plan(spark, pipeline, _changed(catalog, lambda _: None, "FORWARD"))
    assert _plan(spark, pipeline, _changed(catalog, _described, "FORWARD")) == before
    assert _plan(spark, pipeline, _changed(catalog, _more, "FORWARD")) != before


def test_it_does_not_survive_a_version_that_reads_not_all_before_it(spark: SparkSession, catalog: Catalog) -> None:
    """The second one has a field with a default, and the third one has none for it: it reads the second one's records alone."""
    first = catalog.schema(DISPATCHED)
    with_default = _changed(catalog, _more, before=(first,))
    second = with_default.schema(DISPATCHED)

    def without_default(schema: dict[str, Any]) -> None:
        _more(schema)
        del schema["fields"][0]["default"]

    third = _changed(catalog, without_default, before=(first, second))
    plans = [_plan(spark, delays_by_origin, each) for each in (catalog, with_default, third)]
    assert plans[0] == plans[1] != plans[2]


def test_a_join_survives_a_field_more_though_it_needs_all_that_there_were(
    spark: SparkSession, catalog: Catalog
) -> None:
    def carries_all(dispatches: DataFrame, deliveries: DataFrame) -> DataFrame:
        delivered = deliveries.withColumnsRenamed({"parcel_id": "of", "delivered_late_minutes": "late"})
        is_its_own = F.expr(
            "parcel_id = of AND delivered_at BETWEEN dispatched_at AND dispatched_at + INTERVAL 20 HOURS"
        )
        joined = dispatches.join(delivered.select("of", "delivered_at", "late"), is_its_own, "left_outer")
        return joined.withColumnRenamed("late", "delivered_late_minutes")

    pipeline = dataclasses.replace(parcel_trips, function=carries_all)
    assert _plan(spark, pipeline, _changed(catalog, _more)) == _plan(spark, pipeline, catalog)

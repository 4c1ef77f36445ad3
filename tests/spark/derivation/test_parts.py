"""Pipelines that make several records of one: their parts are numbered, and a record that can't be made whole is one dead letter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro

from contracts.definitions.catalog import Catalog
from contracts.definitions.topic import TopicContract
from spark.derivation.derivation import Derivation, derived
from spark.derivation.fitness import check
from spark.lookups.broadcasts import Broadcasts
from spark.pipeline import Pipeline
from spark.records.decode import events
from spark.records.schemas import WriterSchemas
from spark.runtime.errors import PipelineUnfit
from tests.sample.pipelines.depots_served import depots_served
from tests.sample.pipelines.dispatches_enriched import LOOKUPS
from tests.spark.examples import DISPATCHED, ENRICHED, SCHEMA, a_delivery, a_dispatch, body, framed, raw_frame
from tests.spark.lookups.test_broadcasts import keyed
from tests.spark.lookups.test_enrich import held

DELIVERED, SERVED = depots_served.source, depots_served.target
Function = Callable[[DataFrame], DataFrame]


def made_by(function: Function) -> Pipeline:
    return Pipeline("depots_served", DELIVERED, SERVED, (), function)


def served(role: str, depot: Column) -> Column:
    return F.struct(F.lit(role).alias("served_as"), depot.alias("depot"))


def both() -> Column:
    return F.array(served("origin", F.col("origin")), served("destination", F.col("destination")))


def inlined(deliveries: DataFrame) -> DataFrame:
    return deliveries.select("*", F.inline(both()))


def of_structs(deliveries: DataFrame) -> DataFrame:
    return deliveries.withColumn("x", F.explode(both())).select("*", "x.served_as", "x.depot").drop("x")


def of_texts(deliveries: DataFrame) -> DataFrame:
    texts = F.array("origin", "destination")
    return deliveries.withColumn("served_as", F.lit("either")).withColumn("depot", F.explode(texts))


def of_the_far(deliveries: DataFrame) -> DataFrame:
    """A filter before, and none of a record whose array is empty."""
    some = F.when(F.col("courier") == "UA", both()).otherwise(
        F.array().cast("array<struct<served_as: string, depot: string>>")
    )
    return deliveries.where("weight_grams > 1000").select("*", F.inline(some))


def rows(spark: SparkSession, catalog: Catalog, function: Function, *parcels: dict[str, Any]) -> list[Any]:
    schema = catalog.schema(DELIVERED)
    raw = raw_frame(spark, *[framed(7, body(parcel, schema)) for parcel in parcels], b"no event")
    schemas = WriterSchemas(f"{DELIVERED}-value", schema, {7: schema})
    derivation = Derivation(spark, made_by(function), catalog, 300)
    made = derivation.to_rows(schemas, derivation.sides({}), {})(raw)
    event = from_avro(F.substring("value", 6, 1 << 20), catalog.schema(SERVED), {"mode": "PERMISSIVE"})
    good = F.when(F.col("reason").isNull(), event)
    return (
        made.select("offset", "part", "parts", "reason", "error", good["served_as"], good["depot"])
        .orderBy("offset", "part")
        .collect()
    )


def aliased(deliveries: DataFrame) -> DataFrame:
    """Names that change nothing."""
    made = inlined(deliveries)
    return made.select(*[F.col(name).alias(name) for name in ("served_as", "depot")], *deliveries.columns)


@pytest.mark.parametrize("function", [inlined, of_structs, of_texts, aliased, depots_served.function])
def test_each_element_is_an_event_with_its_number(spark: SparkSession, catalog: Catalog, function: Function) -> None:
    roles = ["either", "either"] if function is of_texts else ["origin", "destination"]
    found = [tuple(row) for row in rows(spark, catalog, function, a_delivery(), a_delivery(origin="NTH"))]
    assert found == [
        (0, 0, "2", None, None, roles[0], "EST"),
        (0, 1, "2", None, None, roles[1], "IAH"),
        (1, 0, "2", None, None, roles[0], "NTH"),
        (1, 1, "2", None, None, roles[1], "IAH"),
        (2, None, None, "WrongMagic", "the value does not begin with the byte 0x00", None, None),
    ]


def test_a_filter_or_an_empty_array_makes_none_and_a_bad_record_stays(spark: SparkSession, catalog: Catalog) -> None:
    parcels = (a_delivery(), a_delivery(weight_grams=1000), a_delivery(courier="AA"))
    assert [(row.offset, row.part) for row in rows(spark, catalog, of_the_far, *parcels)] == [(0, 0), (0, 1), (3, None)]


def nothing_of_the_slow(deliveries: DataFrame) -> DataFrame:
    """What is required has no value where nothing is made of the record."""
    made = F.when(F.col("on_road_minutes").isNotNull(), both())
    known = F.when(F.col("on_road_minutes").isNotNull(), F.lit("known"))
    structs = F.transform(made, lambda each: each.dropFields("served_as"))
    return deliveries.select("*", known.alias("served_as")).select("*", F.inline(structs))


def test_a_record_that_nothing_is_made_of_has_no_faults(spark: SparkSession, catalog: Catalog) -> None:
    parcels = (a_delivery(), a_delivery(on_road_minutes=None))
    found = rows(spark, catalog, nothing_of_the_slow, *parcels)
    assert [(row.offset, row.part, row.reason) for row in found] == [
        (0, 0, None),
        (0, 1, None),
        (2, None, "WrongMagic"),
    ]


def test_a_record_whose_parts_are_large_together_is_a_dead_letter(spark: SparkSession, catalog: Catalog) -> None:
    def hundreds(deliveries: DataFrame) -> DataFrame:
        return deliveries.select("*", F.inline(F.array_repeat(served("origin", F.col("origin")), 200)))

    found = rows(spark, catalog, hundreds, a_delivery(parcel_id="x" * 400_000), a_delivery())
    assert [(row.offset, row.part, row.reason) for row in found][:2] == [(0, None, "TooMany"), (1, 0, None)]


def renamed_in_inline(deliveries: DataFrame) -> DataFrame:
    """The names of the structs' fields are others."""
    names = (F.col("origin"), F.nullif(F.col("destination"), F.lit("XXX")))
    structs = F.array(*[F.struct(F.lit("x").alias("a"), name.alias("b")) for name in names])
    return deliveries.select("*", F.inline(structs).alias("served_as", "depot"))


def lacking(deliveries: DataFrame) -> DataFrame:
    name = F.nullif(F.col("destination"), F.lit("XXX"))
    return deliveries.select("*", F.inline(F.array(served("origin", F.col("origin")), served("destination", name))))


def lacking_aliased(deliveries: DataFrame) -> DataFrame:
    return lacking(deliveries).select("served_as", F.col("depot").alias("depot"), *deliveries.columns)


def wordy(deliveries: DataFrame) -> DataFrame:
    long = F.when(F.col("destination") == "XXX", F.repeat(F.lit("x"), 16_385)).otherwise(F.col("destination"))
    return deliveries.select("*", F.inline(F.array(served("origin", F.col("origin")), served("destination", long))))


def thousands(deliveries: DataFrame) -> DataFrame:
    many = F.array_repeat(served("origin", F.col("origin")), 1_001)
    return deliveries.select("*", F.inline(F.when(F.col("destination") == "XXX", many).otherwise(both())))


@pytest.mark.parametrize(
    ("function", "reason", "error"),
    [
        (renamed_in_inline, "NullField", "the schema has no null for what the pipeline makes of the record: depot"),
        (lacking, "NullField", "the schema has no null for what the pipeline makes of the record: depot"),
        (lacking_aliased, "NullField", "the schema has no null for what the pipeline makes of the record: depot"),
        (wordy, "TooLong", "the pipeline computes texts of 16396 bytes, at most 16384 fit"),
        (thousands, "TooMany", "the pipeline makes 1001 records of it, at most 1000 fit"),
    ],
)
def test_a_record_with_one_bad_part_is_one_dead_letter(
    spark: SparkSession, catalog: Catalog, function: Function, reason: str, error: str
) -> None:
    found = rows(spark, catalog, function, a_delivery(destination="XXX"), a_delivery())
    assert [(row.offset, row.part, row.reason) for row in found] == [
        (0, None, reason),
        (1, 0, None),
        (1, 1, None),
        (2, None, "WrongMagic"),
    ]
    assert found[0].error == error


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (lambda deliveries: inlined(deliveries).where("depot != 'XXX'"), "filters or computes after or beside"),
        (lambda deliveries: inlined(deliveries).withColumn("x", F.upper("depot")), "filters or computes after"),
        (
            lambda deliveries: inlined(deliveries.withColumn("y", F.struct("courier"))).select(
                "*", F.col("y.courier").alias("x")
            ),
            "renames courier to x|filters or computes after",
        ),
        (
            lambda deliveries: inlined(deliveries.withColumn("unmatched", F.lit(1))).drop("unmatched"),
            "has a column unmatched, and such names are the platform's",
        ),
        (
            lambda deliveries: deliveries.select("*", F.lpad("origin", F.col("parcel_number"), "x").alias("x")).select(
                "*", F.inline(both())
            ),
            "is as long as",
        ),
        (
            lambda deliveries: deliveries.select("*", F.inline(both())).withColumnsRenamed(
                {"depot": "x", "origin": "depot"}
            ),
            "renames origin to depot, depot to x",
        ),
        (
            lambda deliveries: deliveries.withColumn("x", F.explode(both())).select(
                "*", F.col("x.depot").alias("served_as"), "x.depot"
            ),
            "renames depot to served_as",
        ),
        (lambda deliveries: deliveries.select("*", F.inline_outer(both())), "use explode or inline of an array"),
        (
            lambda deliveries: deliveries.select("*", F.posexplode(F.array("origin"))),
            "use explode or inline of an array",
        ),
        (
            lambda deliveries: deliveries.select("*", F.explode(F.create_map("origin", "origin"))),
            "use explode or inline",
        ),
        (lambda deliveries: inlined(deliveries.withColumn("y", F.explode(F.array("origin")))), "explodes 2 arrays"),
        (lambda deliveries: deliveries.withColumn("depot", F.col("origin")), "explodes 0 arrays"),
        (
            lambda deliveries: deliveries.select(
                "*", F.explode(F.sequence(F.lit(0), F.col("weight_grams"))).alias("x")
            ),
            "is as long as a field says",
        ),
        (
            lambda deliveries: deliveries.select(
                "*", F.explode(F.array_repeat("origin", F.col("weight_grams"))).alias("x")
            ),
            "is as long as a field says",
        ),
    ],
    ids=range(14),
)
def test_what_would_leave_parts_without_number_is_refused(
    spark: SparkSession, catalog: Catalog, function: Function, why: str
) -> None:
    with pytest.raises(PipelineUnfit, match=why):
        check(spark, made_by(function), catalog)


def test_the_function_gets_what_it_would_in_a_test_of_its_own(spark: SparkSession, catalog: Catalog) -> None:
    schema = catalog.schema(DELIVERED)
    decoded = events(
        raw_frame(spark, framed(7, body(a_delivery(), schema))),
        WriterSchemas(f"{DELIVERED}-value", schema, {7: schema}),
    )
    decoded = decoded.withColumn("unmatched", F.array().cast("array<string>"))
    own = [
        row.asDict() for row in depots_served(decoded.drop("__reason", "__error", "__record", "unmatched")).collect()
    ]
    platform = derived(depots_served, decoded, parts=True).orderBy("__part").collect()
    assert [{name: row[name] for name in own[0]} for row in platform] == own


def twice(dispatches: DataFrame) -> DataFrame:
    zones = F.array(*[F.struct(F.lit(zone).alias("origin_timezone")) for zone in ("here", "there")])
    return dispatches.drop("origin_timezone").select("*", F.inline(zones))


@pytest.mark.parametrize("is_kept", [True, False])
def test_what_is_looked_up_stands_in_each_part(spark: SparkSession, catalog: Catalog, *, is_kept: bool) -> None:
    topic = catalog.topic(ENRICHED)
    section = {"topic": DISPATCHED, "records": "many"}
    many = TopicContract.model_validate(topic.model_dump(by_alias=True) | {"derived_from": section})
    catalog = replace(catalog, topics={**catalog.topics, ENRICHED: many})
    several = Pipeline("dispatches_enriched", DISPATCHED, ENRICHED, LOOKUPS, twice)
    dimensions = {
        name: replace(each, frame=keyed(each.frame, name, catalog)) for name, each in held(spark, catalog).items()
    }
    derivation = Derivation(spark, several, catalog, 300)
    sides = Broadcasts(LOOKUPS, derivation.sides).sides(dimensions) if is_kept else derivation.sides(dimensions)
    raw = raw_frame(spark, framed(7, body(a_dispatch())), framed(7, body(a_dispatch(courier="??"))), b"no event")
    made = derivation.to_rows(WriterSchemas(f"{DISPATCHED}-value", SCHEMA, {7: SCHEMA}), sides, dimensions)(raw)
    event = F.when(F.col("reason").isNull(), from_avro(F.substring("value", 6, 1 << 20), catalog.schema(ENRICHED)))
    found = made.select("offset", "part", "parts", event["courier_name"], event["origin_timezone"], "unmatched")
    assert [tuple(row) for row in found.orderBy("offset", "part").collect()] == [
        (0, 0, "2", "Umber Couriers Ltd.", "here", ""),
        (0, 1, "2", "Umber Couriers Ltd.", "there", ""),
        (1, 0, "2", None, "here", "couriers"),
        (1, 1, "2", None, "there", "couriers"),
        (2, None, None, None, None, None),
    ]

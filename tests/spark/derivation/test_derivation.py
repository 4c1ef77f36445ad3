"""A pipeline's function: what may be written in one, what is refused, and that it is the function that runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro

from contracts import topics
from contracts.definitions.catalog import Catalog
from spark.derivation.derivation import Derivation, derived
from spark.derivation.faults import Fault, faults, set_aside
from spark.derivation.fitness import check
from spark.lookups.dimensions import stamped_versions
from spark.lookups.join import look_up, sides
from spark.pipeline import Lookup, Pipeline, pipeline
from spark.pipelines.departures_enriched import LOOKUPS, departures_enriched
from spark.queries.repair import fields_again
from spark.records.decode import events
from spark.records.schemas import WriterSchemas
from spark.records.wire import wire_value
from spark.runtime.errors import PipelineUnfit
from spark.runtime.internals.plans import NotRowByRow, carrying, unchanged, used
from tests.spark.examples import DEPARTED, ENRICHED, SCHEMA, a_departure, body, framed, raw_frame
from tests.spark.lookups.test_enrich import held

LONG_HAUL = "flights.departed.longhaul.v1"
Function = Callable[[DataFrame], DataFrame]


def made_by(function: Function) -> Pipeline:
    return Pipeline("mine", departures_enriched.source, departures_enriched.target, LOOKUPS, function)


def looked_up(spark: SparkSession, catalog: Catalog) -> DataFrame:
    raw = raw_frame(spark, framed(7, body(a_departure())), b"no event")
    decoded = events(raw, WriterSchemas(f"{DEPARTED}-value", SCHEMA, {7: SCHEMA}))
    return look_up(decoded, LOOKUPS, sides(LOOKUPS, held(spark, catalog)))


def every_field(departures: DataFrame) -> DataFrame:
    return departures.select(departures.columns)


def louder(departures: DataFrame) -> DataFrame:
    louder = departures.alias("d").select("d.*", F.upper("airline_name").alias("loud"))
    return louder.drop("airline_name").withColumnRenamed("loud", "airline_name")


def cast_to_what_it_is(departures: DataFrame) -> DataFrame:
    """Of which nothing is left in Spark's optimised plan, as of an alias."""
    return departures.withColumns(
        {"plane_seats": F.col("plane_seats").cast("int"), "plane_model": F.col("plane_model")}
    )


def filled(departures: DataFrame) -> DataFrame:
    """Which would fill in the platform's columns as well, if it got them."""
    return departures.withColumns({name: F.coalesce(name, F.lit("none")) for name in ("airline_name", "origin_name")})


def test_what_the_pipelines_here_make_is_what_their_contracts_say(spark: SparkSession, catalog: Catalog) -> None:
    check(spark, departures_enriched, catalog)


@pytest.mark.parametrize("function", [lambda departures: departures, every_field, louder, filled])
def test_the_platforms_columns_come_out_whatever_the_function_chooses(
    spark: SparkSession, catalog: Catalog, function: Function
) -> None:
    check(spark, made_by(function), catalog)
    found = derived(made_by(function), looked_up(spark, catalog)).orderBy("__record.offset").collect()
    assert [(row["flight_id"] is None, row["__record"].offset, row["__reason"]) for row in found] == [
        (False, 0, None),
        (True, 1, "WrongMagic"),
    ]
    assert found[0].unmatched == []
    assert found[0].airline_name == ("UNITED AIR LINES INC." if function is louder else "United Air Lines Inc.")


def wasteful(departures: DataFrame) -> DataFrame:
    """One column that no contract has, and one that takes the place of another."""
    return louder(departures.withColumn("quiet", F.lower("origin_name")))


@pytest.mark.parametrize(
    ("function", "changed", "needed"),
    [
        (every_field, set(), set()),
        (louder, {"airline_name"}, {"airline_name"}),
        (wasteful, {"airline_name"}, {"airline_name"}),
        (cast_to_what_it_is, {"plane_seats", "plane_model"}, {"plane_seats", "plane_model"}),
        (filled, {"airline_name", "origin_name"}, {"airline_name", "origin_name"}),
    ],
)
def test_what_a_function_leaves_as_it_is_and_what_it_needs_is_known(
    spark: SparkSession, catalog: Catalog, function: Function, changed: set[str], needed: set[str]
) -> None:
    made, given, kept, needed_by_it, _ = check(spark, made_by(function), catalog)
    assert set(made.columns) - unchanged(made, given) == set(made.columns) - kept == changed
    assert used(made, given) == needed_by_it == needed


@pytest.mark.parametrize("function", [every_field, louder, wasteful, cast_to_what_it_is, filled])
def test_the_value_is_that_of_the_row_that_the_function_makes(
    spark: SparkSession, catalog: Catalog, function: Function
) -> None:
    schema, dimensions = catalog.schema(ENRICHED), held(spark, catalog)
    departures = [a_departure(), a_departure(carrier="ZZ", tail_number=None)]
    raw = raw_frame(spark, *[framed(7, body(departure)) for departure in departures])
    schemas = WriterSchemas(f"{DEPARTED}-value", SCHEMA, {7: SCHEMA})
    derivation = Derivation(spark, made_by(function), catalog, 300)
    rows = derivation.to_rows(schemas, derivation.sides(dimensions), dimensions)(raw).orderBy("offset")
    whole = derived(made_by(function), look_up(events(raw, schemas), LOOKUPS, sides(LOOKUPS, dimensions))).withColumns(
        {"dimension_versions": stamped_versions(dimensions), "revision": F.lit(0)}
    )
    expected = whole.orderBy("__record.offset").select(wire_value(schema, 300).alias("value")).collect()
    read = from_avro(F.substring("value", 6, 1 << 20), schema, {"mode": "FAILFAST"}).alias("event")
    assert rows.select(read).collect() == spark.createDataFrame(expected).select(read).collect()


def with_filters(departures: DataFrame) -> DataFrame:
    far = departures.where("distance_miles >= 2000").withColumn("hours", F.col("distance_miles") / 500)
    return far.where(F.col("hours") < 5).drop("hours")


def test_a_filter_takes_good_records_away_and_never_a_bad_one(spark: SparkSession, catalog: Catalog) -> None:
    mine = Pipeline("mine", DEPARTED, LONG_HAUL, (), with_filters)
    checked = check(spark, mine, catalog)
    assert checked.used == {"distance_miles"}
    departures = [a_departure(distance_miles=miles) for miles in (1999, 2000, 2499, 2500)]
    raw = raw_frame(spark, *[framed(7, body(departure)) for departure in departures], b"no event")
    decoded = look_up(events(raw, WriterSchemas(f"{DEPARTED}-value", SCHEMA, {7: SCHEMA})), (), ())
    found = derived(mine, decoded).orderBy("__record.offset").collect()
    assert [(row["__record"].offset, row["__reason"]) for row in found] == [(1, None), (2, None), (4, "WrongMagic")]


def test_a_condition_that_is_a_field_itself_is_used(spark: SparkSession, catalog: Catalog) -> None:
    given = spark.createDataFrame([], "a int, is_b boolean")
    assert used(given.where("is_b"), given) == {"is_b"}


def test_a_step_that_is_no_projection_carries_nothing(spark: SparkSession, catalog: Catalog) -> None:
    before = looked_up(spark, catalog)
    with pytest.raises(NotRowByRow, match="Aggregate"):
        carrying(before.groupBy("flight_id").count(), before, before)


def in_python(name):  # type: ignore[no-untyped-def]  # Spark would take types for those of a pandas function
    return name.upper()


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (
            lambda departures: departures.withColumn("x", F.col("distanze")),
            "fails with the fields that it gets: AnalysisEx",
        ),
        (lambda departures: departures.columns, r"returns \['flight_id', .*, and not a frame"),
        (
            lambda departures: departures.drop("carrier"),
            "mine makes no carrier, which flights.departed.enriched.v1 has",
        ),
        (lambda departures: departures.withColumn("plane_seats", F.lit("many")), "makes plane_seats a string, in"),
        (
            lambda departures: departures.withColumn("distance_miles", F.abs("distance_miles")),
            "changes distance_miles: an event",
        ),
        (
            lambda departures: departures.withColumn("unmatched", F.array()),
            "has a column unmatched, and such names are the platform's",
        ),
        (
            lambda departures: departures.select("*", F.lit(1).alias("origin")),
            "makes origin twice",
        ),
        (
            lambda departures: departures.where("distance_miles > 2000"),
            "leaves records out, and the contract of flights.departed.enriched.v1 promises one for each",
        ),
        (lambda departures: departures.distinct(), "needs more than one row, Deduplicate"),
        (lambda departures: departures.orderBy("carrier"), "needs more than one row, Sort"),
        (lambda departures: departures.limit(3), "needs more than one row, GlobalLimit"),
        (lambda departures: departures.join(departures.sparkSession.range(1)), "needs more than one row, Join"),
        (lambda departures: departures.withColumn("x", F.explode(F.array("carrier"))), "makes several records of one"),
        (
            lambda departures: departures.withColumn("x", F.max("distance_miles").over(Window.partitionBy("carrier"))),
            "needs more than one row",
        ),
        (lambda departures: departures.sparkSession.range(1), "needs more than one row, Range"),
        (
            lambda departures: departures.withColumn("airline_name", F.udf(in_python, "string")("carrier")),
            "calls a Python function",
        ),
        (lambda departures: departures.withColumn("x", F.rand()), "is another value each time"),
        (
            lambda departures: departures.withColumn("x", F.when(F.col("carrier") == "", F.raise_error(F.lit("")))),
            "stops the pipeline at a record, for good",
        ),
        (
            lambda departures: departures.withColumn("x", F.assert_true(F.col("carrier") != "")),
            "stops the pipeline at a record, for good",
        ),
        (lambda departures: departures.withColumn("x", F.year(F.current_timestamp())), "is another value each time"),
        (lambda departures: departures.withColumn("x", F.current_date()), "is another value each time"),
    ],
    ids=range(21),
)
def test_a_function_that_cannot_run_record_by_record_is_refused_with_the_reason(
    spark: SparkSession, catalog: Catalog, function: Function, why: str
) -> None:
    with pytest.raises(PipelineUnfit, match=why):
        check(spark, made_by(function), catalog)


def test_a_record_with_a_fault_of_what_is_computed_is_a_bad_one(spark: SparkSession) -> None:
    rows = spark.createDataFrame(
        [(1, "x", None, None), (2, None, None, None), (3, "x" * 9, None, None), (4, None, "WrongMagic", "theirs")],
        "number int, text string, __reason string, __error string",
    )
    found = [
        Fault("NullField", F.col("text").isNull(), F.lit("null")),
        Fault("TooLong", F.coalesce(F.octet_length("text"), F.lit(0)) > 8, F.lit("long")),
    ]
    assert [(row["__reason"], row["__error"]) for row in set_aside(rows, found).orderBy("number").collect()] == [
        (None, None),
        ("NullField", "null"),
        ("TooLong", "long"),
        ("WrongMagic", "theirs"),
    ]


def test_what_is_computed_is_looked_at_where_its_contract_asks_for_it(spark: SparkSession, catalog: Catalog) -> None:
    assert faults(departures_enriched, catalog, [*_fields(catalog)]) == []
    (too_long,) = faults(departures_enriched, catalog, _fields(catalog) - {"plane_model", "airline_name"})
    names = spark.createDataFrame(
        [("x" * 16_384, None), ("x" * 16_384, "y"), (None, None)], "plane_model string, airline_name string"
    )
    assert [tuple(row) for row in names.select(too_long.is_so, too_long.error).collect()] == [
        (False, "the pipeline computes texts of 16384 bytes, at most 16384 fit"),
        (True, "the pipeline computes texts of 16385 bytes, at most 16384 fit"),
        (False, "the pipeline computes texts of 0 bytes, at most 16384 fit"),
    ]


def _fields(catalog: Catalog) -> set[str]:
    return {field["name"] for field in json.loads(catalog.schema(ENRICHED))["fields"]}


@pytest.mark.parametrize(
    ("lookup", "why"),
    [
        (Lookup("mine", "airlines", "carrier", {"x": "nome"}), "lookup mine: airlines has no column nome"),
        (Lookup("mine", "airlines", "carrier", {"origin": "name"}), "origin is filled in already"),
        (Lookup("mine", "airlines", "carrier", {"airline_name": "name"}), "airline_name is filled in already"),
        (
            Lookup("mine", "airlines", "flight_number", {"x": "name"}),
            "flight_number is int, the key column carrier of airlines is string",
        ),
        (Lookup("mine", "airlines", "caria", {"x": "name"}), "flights.departed.v1 has no field caria"),
        (Lookup("planes", "airlines", "carrier", {"x": "name"}), "its name is not one of its own"),
        (Lookup("it's", "airlines", "carrier", {"x": "name"}), "its name is not one of its own"),
    ],
    ids=range(7),
)
def test_a_lookup_that_cannot_be_joined_is_refused(
    spark: SparkSession, catalog: Catalog, lookup: Lookup, why: str
) -> None:
    mine = Pipeline("mine", departures_enriched.source, departures_enriched.target, (*LOOKUPS, lookup), every_field)
    with pytest.raises(PipelineUnfit, match=why):
        check(spark, mine, catalog)


def test_what_a_repair_cannot_make_again_is_refused(spark: SparkSession, catalog: Catalog) -> None:
    given = check(spark, departures_enriched, catalog).given
    again = fields_again(departures_enriched, catalog, given, [])
    assert (again["carrier"], set(again.values())) == (None, {None})
    other = Pipeline("mine", departures_enriched.source, "flights.cancelled.v1", LOOKUPS, every_field)
    of_the_other = fields_again(replace(other, lookups=()), catalog, given, ["carrier"])
    assert of_the_other["departed_at"] == given.schema["departed_at"].dataType
    with pytest.raises(
        PipelineUnfit, match=r"mine needs departure_delay_minutes, which flights\.cancelled\.v1 does not have"
    ):
        fields_again(other, catalog, given, ["departure_delay_minutes", "plane_seats"])


def test_the_parameter_is_named_where_its_topic_is() -> None:
    with pytest.raises(TypeError, match="named takes departures, its pipeline reads flights"):

        @pipeline(flights=topics.FLIGHTS_DEPARTED, writes=topics.FLIGHTS_DEPARTED_ENRICHED)
        def named(departures: DataFrame) -> DataFrame:
            return departures

"""A pipeline's function: what may be written in one, what is refused, and that it is the function that runs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from contracts import topics
from contracts.catalog import Catalog
from spark.lookups.join import look_up, sides
from spark.pipeline import Pipeline, pipeline
from spark.pipelines.departures_enriched import LOOKUPS, departures_enriched
from spark.queries.derivation import Derivation, check, derived
from spark.records.decode import events
from spark.records.schemas import WriterSchemas
from spark.runtime.errors import PipelineUnfit
from spark.runtime.internals.plans import NotRowByRow, carrying, unchanged, used
from tests.spark.records import DEPARTED, SCHEMA, a_departure, body, framed, raw_frame
from tests.spark.test_enrich import held

Function = Callable[[DataFrame], DataFrame]


def made_by(function: Function) -> Pipeline:
    return Pipeline("mine", departures_enriched.source, departures_enriched.target, LOOKUPS, function)


def looked_up(spark: SparkSession, catalog: Catalog) -> DataFrame:
    raw = raw_frame(spark, framed(7, body(a_departure())), b"no event")
    decoded = events(raw, WriterSchemas(f"{DEPARTED}-value", SCHEMA, {7: SCHEMA}))
    return look_up(decoded, LOOKUPS, sides(LOOKUPS, held(spark, catalog)))


def every_field(departures: DataFrame) -> DataFrame:
    return departures.select(*[name for name in departures.columns if not name.startswith("__")])


def louder(departures: DataFrame) -> DataFrame:
    louder = departures.alias("d").select("d.*", F.upper("airline_name").alias("loud"))
    return every_field(louder.drop("airline_name", "unmatched").withColumnRenamed("loud", "airline_name"))


def test_what_the_pipelines_here_make_is_what_their_contracts_say(spark: SparkSession, catalog: Catalog) -> None:
    check(spark, departures_enriched, catalog)


@pytest.mark.parametrize("function", [lambda departures: departures, every_field, louder])
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
    ("function", "changed"), [(every_field, []), (louder, ["airline_name"]), (wasteful, ["airline_name"])]
)
def test_what_a_function_leaves_as_it_is_and_what_it_computes_with_is_known(
    spark: SparkSession, catalog: Catalog, function: Function, changed: list[str]
) -> None:
    made, given = check(spark, made_by(function), catalog)
    assert unchanged(made, given) == set(made.columns) - set(changed)
    assert used(made, given) == set(changed)


def test_a_step_that_is_no_projection_carries_nothing(spark: SparkSession, catalog: Catalog) -> None:
    before = looked_up(spark, catalog)
    with pytest.raises(NotRowByRow, match="Aggregate"):
        carrying(before.groupBy("flight_id").count(), before, ["__record"])


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
        (lambda departures: departures.where("distance_miles > 2000"), "no projection of one row, Filter"),
        (lambda departures: departures.distinct(), "no projection of one row, Deduplicate"),
        (lambda departures: departures.orderBy("carrier"), "no projection of one row, Sort"),
        (lambda departures: departures.limit(3), "no projection of one row, GlobalLimit"),
        (lambda departures: departures.join(departures.sparkSession.range(1)), "no projection of one row, Join"),
        (lambda departures: departures.withColumn("x", F.explode(F.array("carrier"))), "no projection of one row"),
        (
            lambda departures: departures.withColumn("x", F.max("distance_miles").over(Window.partitionBy("carrier"))),
            "no projection of one row",
        ),
        (lambda departures: departures.sparkSession.range(1), "no projection of one row, Range"),
        (
            lambda departures: departures.withColumn("airline_name", F.udf(in_python, "string")("carrier")),
            "calls a Python function",
        ),
        (lambda departures: departures.withColumn("x", F.rand()), "is another value each time"),
        (lambda departures: departures.withColumn("x", F.year(F.current_timestamp())), "is another value each time"),
        (lambda departures: departures.withColumn("x", F.current_date()), "is another value each time"),
    ],
    ids=range(16),
)
def test_a_function_that_cannot_run_record_by_record_is_refused_with_the_reason(
    spark: SparkSession, catalog: Catalog, function: Function, why: str
) -> None:
    with pytest.raises(PipelineUnfit, match=why):
        check(spark, made_by(function), catalog)


def test_a_record_whose_event_would_lack_a_required_field_is_a_bad_one(spark: SparkSession, catalog: Catalog) -> None:
    def near(departures: DataFrame) -> DataFrame:
        return departures.withColumn("distance_miles", F.when(F.col("distance_miles") < 100, F.col("distance_miles")))

    derivation = Derivation(spark, made_by(near), catalog, 300)
    raw = raw_frame(spark, *[framed(7, body(a_departure(distance_miles=miles))) for miles in (99, 101)], b"no event")
    dimensions = held(spark, catalog)
    schemas = WriterSchemas(f"{DEPARTED}-value", SCHEMA, {7: SCHEMA})
    rows = derivation.rows(raw, schemas, derivation.sides(dimensions), dimensions).orderBy("offset").collect()
    assert [row.reason for row in rows] == [None, "NullField", "WrongMagic"]
    assert rows[1].error == "the schema has no null for what the pipeline makes of it: distance_miles"
    assert bytes(rows[1].value) == framed(7, body(a_departure(distance_miles=101)))


def test_the_parameter_is_named_where_its_topic_is() -> None:
    with pytest.raises(TypeError, match="named takes departures, its pipeline reads flights"):

        @pipeline(flights=topics.FLIGHTS_DEPARTED, writes=topics.FLIGHTS_DEPARTED_ENRICHED)
        def named(departures: DataFrame) -> DataFrame:
            return departures

"""A pipeline's function: what may be written in one, what is refused, and that it is the function that runs."""

from __future__ import annotations

import itertools
import json
import uuid
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro

from contracts.definitions.catalog import Catalog
from spark.derivation.derivation import Derivation, derived
from spark.derivation.faults import Fault, faults, narrow_texts, set_aside
from spark.derivation.fitness import check
from spark.lookups.dimensions import stamped_versions
from spark.lookups.join import look_up, sides
from spark.pipeline import Lookup, Pipeline, pipeline
from spark.queries.repair import fields_again
from spark.records.decode import events
from spark.records.schemas import WriterSchemas
from spark.records.wire import wire_value
from spark.runtime.errors import PipelineUnfit
from spark.runtime.internals.plans import NotRowByRow, carrying, unchanged, used
from tests.sample import topics
from tests.sample.pipelines.dispatches_enriched import LOOKUPS, dispatches_enriched
from tests.spark.examples import DISPATCHED, ENRICHED, SCHEMA, a_dispatch, body, framed, raw_frame, schema_with
from tests.spark.lookups.test_enrich import held

HEAVY = "parcels.dispatched.heavy.v1"
Function = Callable[[DataFrame], DataFrame]


def made_by(function: Function) -> Pipeline:
    return Pipeline("mine", dispatches_enriched.source, dispatches_enriched.target, LOOKUPS, function)


def looked_up(spark: SparkSession, catalog: Catalog) -> DataFrame:
    raw = raw_frame(spark, framed(7, body(a_dispatch())), b"no event")
    decoded = events(raw, WriterSchemas(f"{DISPATCHED}-value", SCHEMA, {7: SCHEMA}))
    return look_up(decoded, LOOKUPS, sides(LOOKUPS, held(spark, catalog)))


def every_field(dispatches: DataFrame) -> DataFrame:
    return dispatches.select(dispatches.columns)


def louder(dispatches: DataFrame) -> DataFrame:
    louder = dispatches.alias("d").select("d.*", F.upper("courier_name").alias("loud"))
    return louder.drop("courier_name").withColumnRenamed("loud", "courier_name")


def cast_to_what_it_is(dispatches: DataFrame) -> DataFrame:
    """Of which nothing is left in Spark's optimised plan, as of an alias."""
    return dispatches.withColumns({"van_seats": F.col("van_seats").cast("int"), "van_model": F.col("van_model")})


def filled(dispatches: DataFrame) -> DataFrame:
    """Which would fill in the platform's columns as well, if it got them."""
    return dispatches.withColumns({name: F.coalesce(name, F.lit("none")) for name in ("courier_name", "origin_name")})


_names = itertools.cycle(["courier_name", "origin_name"])


def _either_name(dispatches: DataFrame) -> DataFrame:
    """Of two frames of it only the names of columns differ."""
    names = next(_names), next(_names)
    next(_names)
    return dispatches.drop(*names).select("*", *[F.lit("none").alias(name) for name in names])


def test_what_the_pipelines_here_make_is_what_their_contracts_say(spark: SparkSession, catalog: Catalog) -> None:
    check(spark, dispatches_enriched, catalog)


@pytest.mark.parametrize("function", [lambda dispatches: dispatches, every_field, louder, filled])
def test_the_platforms_columns_come_out_whatever_the_function_chooses(
    spark: SparkSession, catalog: Catalog, function: Function
) -> None:
    check(spark, made_by(function), catalog)
    found = derived(made_by(function), looked_up(spark, catalog)).orderBy("__record.offset").collect()
    assert [(row["parcel_id"] is None, row["__record"].offset, row["__reason"]) for row in found] == [
        (False, 0, None),
        (True, 1, "WrongMagic"),
    ]
    assert found[0].unmatched == []
    assert found[0].courier_name == ("UMBER COURIERS LTD." if function is louder else "Umber Couriers Ltd.")


def wasteful(dispatches: DataFrame) -> DataFrame:
    """One column that no contract has, and one that takes the place of another."""
    return louder(dispatches.withColumn("quiet", F.lower("origin_name")))


@pytest.mark.parametrize(
    ("function", "changed", "needed"),
    [
        (every_field, set(), set()),
        (louder, {"courier_name"}, {"courier_name"}),
        (wasteful, {"courier_name"}, {"courier_name"}),
        (cast_to_what_it_is, {"van_seats", "van_model"}, {"van_seats", "van_model"}),
        (filled, {"courier_name", "origin_name"}, {"courier_name", "origin_name"}),
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
    dispatches = [a_dispatch(), a_dispatch(courier="ZZ", van_id=None)]
    raw = raw_frame(spark, *[framed(7, body(dispatch)) for dispatch in dispatches])
    schemas = WriterSchemas(f"{DISPATCHED}-value", SCHEMA, {7: SCHEMA})
    derivation = Derivation(spark, made_by(function), catalog, 300)
    rows = derivation.to_rows(schemas, derivation.sides(dimensions), dimensions)(raw).orderBy("offset")
    whole = derived(made_by(function), look_up(events(raw, schemas), LOOKUPS, sides(LOOKUPS, dimensions))).withColumns(
        {"dimension_versions": stamped_versions(dimensions), "revision": F.lit(0)}
    )
    expected = whole.orderBy("__record.offset").select(wire_value(schema, 300).alias("value")).collect()
    read = from_avro(F.substring("value", 6, 1 << 20), schema, {"mode": "FAILFAST"}).alias("event")
    assert rows.select(read).collect() == spark.createDataFrame(expected).select(read).collect()


def with_filters(dispatches: DataFrame) -> DataFrame:
    far = dispatches.where("weight_grams >= 2000").withColumn("hours", F.col("weight_grams") / 500)
    return far.where(F.col("hours") < 5).drop("hours")


def test_a_filter_takes_good_records_away_and_never_a_bad_one(spark: SparkSession, catalog: Catalog) -> None:
    mine = Pipeline("mine", DISPATCHED, HEAVY, (), with_filters)
    checked = check(spark, mine, catalog)
    assert checked.used == {"weight_grams"}
    dispatches = [a_dispatch(weight_grams=grams) for grams in (1999, 2000, 2499, 2500)]
    raw = raw_frame(spark, *[framed(7, body(dispatch)) for dispatch in dispatches], b"no event")
    decoded = look_up(events(raw, WriterSchemas(f"{DISPATCHED}-value", SCHEMA, {7: SCHEMA})), (), ())
    found = derived(mine, decoded).orderBy("__record.offset").collect()
    assert [(row["__record"].offset, row["__reason"]) for row in found] == [(1, None), (2, None), (4, "WrongMagic")]


def test_a_condition_that_is_a_field_itself_is_used(spark: SparkSession, catalog: Catalog) -> None:
    given = spark.createDataFrame([], "a int, is_b boolean")
    assert used(given.where("is_b"), given) == {"is_b"}


def test_a_step_that_is_no_projection_carries_nothing(spark: SparkSession, catalog: Catalog) -> None:
    before = looked_up(spark, catalog)
    with pytest.raises(NotRowByRow, match="Aggregate"):
        carrying(before.groupBy("parcel_id").count(), before, before)


def in_python(name):  # type: ignore[no-untyped-def]  # Spark would take types for those of a pandas function
    return name.upper()


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (
            lambda dispatches: dispatches.withColumn("x", F.col("distanze")),
            "fails with the fields that it gets: AnalysisEx",
        ),
        (lambda dispatches: dispatches.columns, r"returns \['parcel_id', .*, and not a frame"),
        (
            lambda dispatches: dispatches.drop("courier"),
            "mine makes no courier, which parcels.dispatched.enriched.v1 has",
        ),
        (lambda dispatches: dispatches.withColumn("van_seats", F.lit("many")), "makes van_seats a string, in"),
        (
            lambda dispatches: dispatches.withColumn("weight_grams", F.abs("weight_grams")),
            "changes weight_grams: an event",
        ),
        (
            lambda dispatches: dispatches.withColumn("unmatched", F.array()),
            "has a column unmatched, and such names are the platform's",
        ),
        (
            lambda dispatches: dispatches.select("*", F.lit(1).alias("origin")),
            "makes origin twice",
        ),
        (
            lambda dispatches: dispatches.where("weight_grams > 2000"),
            "leaves records out, and the contract of parcels.dispatched.enriched.v1 promises one for each",
        ),
        (lambda dispatches: dispatches.distinct(), "needs more than one row, Deduplicate"),
        (lambda dispatches: dispatches.orderBy("courier"), "needs more than one row, Sort"),
        (lambda dispatches: dispatches.limit(3), "needs more than one row, GlobalLimit"),
        (lambda dispatches: dispatches.join(dispatches.sparkSession.range(1)), "needs more than one row, Join"),
        (lambda dispatches: dispatches.withColumn("x", F.explode(F.array("courier"))), "makes several records of one"),
        (
            lambda dispatches: dispatches.withColumn("x", F.max("weight_grams").over(Window.partitionBy("courier"))),
            "needs more than one row",
        ),
        (lambda dispatches: dispatches.sparkSession.range(1), "needs more than one row, Range"),
        (
            lambda dispatches: dispatches.withColumn("courier_name", F.udf(in_python, "string")("courier")),
            "calls a Python function",
        ),
        (lambda dispatches: dispatches.withColumn("x", F.rand()), "is another value each time"),
        (
            lambda dispatches: dispatches.withColumn("x", F.when(F.col("courier") == "", F.raise_error(F.lit("")))),
            "stops the pipeline at a record, for good",
        ),
        (
            lambda dispatches: dispatches.withColumn("x", F.assert_true(F.col("courier") != "")),
            "stops the pipeline at a record, for good",
        ),
        (lambda dispatches: dispatches.withColumn("x", F.year(F.current_timestamp())), "is another value each time"),
        (lambda dispatches: dispatches.withColumn("x", F.current_date()), "is another value each time"),
        (
            lambda dispatches: dispatches.withColumn("x", F.lit(datetime.now(UTC))),
            "mine makes something else each time",
        ),
        (
            lambda dispatches: dispatches.withColumn("x", F.lit(str(uuid.uuid4()))),
            "mine makes something else each time",
        ),
        (_either_name, "mine makes something else each time"),
    ],
    ids=range(24),
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
    assert faults(dispatches_enriched, catalog, ENRICHED, [*_fields(catalog)]) == []
    (too_long,) = faults(dispatches_enriched, catalog, ENRICHED, _fields(catalog) - {"van_model", "courier_name"})
    names = spark.createDataFrame(
        [("x" * 16_384, None), ("x" * 16_384, "y"), (None, None)], "van_model string, courier_name string"
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
        (Lookup("mine", "couriers", "courier", {"x": "nome"}), "lookup mine: couriers has no column nome"),
        (Lookup("mine", "couriers", "courier", {"origin": "name"}), "origin is filled in already"),
        (Lookup("mine", "couriers", "courier", {"courier_name": "name"}), "courier_name is filled in already"),
        (
            Lookup("mine", "couriers", "parcel_number", {"x": "name"}),
            "parcel_number is int, the key column courier of couriers is string",
        ),
        (Lookup("mine", "couriers", "caria", {"x": "name"}), "parcels.dispatched.v1 has no field caria"),
        (Lookup("vans", "couriers", "courier", {"x": "name"}), "its name is not one of its own"),
        (Lookup("it's", "couriers", "courier", {"x": "name"}), "its name is not one of its own"),
    ],
    ids=range(7),
)
def test_a_lookup_that_cannot_be_joined_is_refused(
    spark: SparkSession, catalog: Catalog, lookup: Lookup, why: str
) -> None:
    mine = Pipeline("mine", dispatches_enriched.source, dispatches_enriched.target, (*LOOKUPS, lookup), every_field)
    with pytest.raises(PipelineUnfit, match=why):
        check(spark, mine, catalog)


_ENUM = {"type": "enum", "name": "Name", "symbols": ["umber"]}


def test_an_enum_that_is_named_again_has_its_symbols_there_too() -> None:
    enum = {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}
    fields = [
        {"name": "a", "type": enum},
        {"name": "b", "type": ["null", "Kind"]},
        {"name": "c", "type": "parcels.Kind"},
        {"name": "d", "type": "string"},
    ]
    schema = {"type": "record", "name": "Any", "namespace": "parcels", "fields": fields}
    assert narrow_texts(json.dumps(schema)) == dict.fromkeys("abc", frozenset("AB"))


@pytest.mark.parametrize(
    ("field", "kind", "why"),
    [
        ("courier_name", _ENUM, "mine makes courier_name, of type enum: .*, looked up .*: give courier_name one of"),
        ("courier_name", {"type": "string", "logicalType": "uuid"}, "mine makes courier_name, of type uuid: "),
        ("courier", _ENUM, "mine makes courier, of type enum: .* carried from another type"),
    ],
)
def test_a_text_that_the_target_may_not_hold_is_refused(
    spark: SparkSession, catalog: Catalog, field: str, kind: dict[str, object], why: str
) -> None:
    schema = schema_with({"name": field, "type": ["null", kind], "default": None}, base=catalog.schema(ENRICHED))
    narrow = replace(catalog, _schemas={**catalog._schemas, ENRICHED: (schema,)})
    with pytest.raises(PipelineUnfit, match=why):
        check(spark, made_by(every_field), narrow)


def test_an_enum_is_carried_if_the_target_has_all_its_symbols(spark: SparkSession, catalog: Catalog) -> None:
    def of(raw: list[str], enriched: list[str]) -> Catalog:
        symbols = {DISPATCHED: raw, ENRICHED: enriched}
        schemas = {
            topic: (schema_with({"name": "courier", "type": _ENUM | {"symbols": each}}, base=catalog.schema(topic)),)
            for topic, each in symbols.items()
        }
        return replace(catalog, _schemas={**catalog._schemas, **schemas})

    check(spark, made_by(every_field), of(["a"], ["a", "b"]))
    with pytest.raises(PipelineUnfit, match="mine makes courier, of type enum"):
        check(spark, made_by(every_field), of(["a", "b"], ["a"]))


def test_what_a_repair_cannot_make_again_is_refused(spark: SparkSession, catalog: Catalog) -> None:
    given = check(spark, dispatches_enriched, catalog).given
    again = fields_again(dispatches_enriched, catalog, given, [])
    assert (again["courier"], set(again.values())) == (None, {None})
    other = Pipeline("mine", dispatches_enriched.source, "parcels.lost.v1", LOOKUPS, every_field)
    of_the_other = fields_again(replace(other, lookups=()), catalog, given, ["courier"])
    assert of_the_other["dispatched_at"] == given.schema["dispatched_at"].dataType
    with pytest.raises(PipelineUnfit, match=r"mine needs late_minutes, which parcels\.lost\.v1 does not have"):
        fields_again(other, catalog, given, ["late_minutes", "van_seats"])


def test_the_parameter_is_named_where_its_topic_is() -> None:
    with pytest.raises(TypeError, match="named takes dispatches, its pipeline reads parcels"):

        @pipeline(parcels=topics.PARCELS_DISPATCHED, writes=topics.PARCELS_DISPATCHED_ENRICHED)
        def named(dispatches: DataFrame) -> DataFrame:
            return dispatches

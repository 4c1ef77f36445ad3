from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.types import StructType

from contracts.definitions.catalog import Catalog
from spark.derivation.derivation import derived
from spark.lookups.dimensions import Dimension
from spark.lookups.join import look_up, sides
from spark.records.decode import events
from spark.records.schemas import WriterSchemas
from tests.sample.pipelines.dispatches_enriched import dispatches_enriched
from tests.spark.examples import DISPATCHED, ENRICHED, SCHEMA, a_dispatch, body, framed, raw_frame

ROWS: dict[str, list[tuple[Any, ...]]] = {
    "couriers": [("UA", "Umber Couriers Ltd.")],
    "depots": [
        ("EST", "East Yard", 40.69, -74.17, 18, "America/New_York"),
        ("IAH", "Ivy Hill", 29.98, -95.34, 97, None),
    ],
    "vans": [("N14228", 1999, "Panel van", "FERROL", "F-824", 2, 149, "diesel")],
}


def dimension(spark: SparkSession, catalog: Catalog, name: str) -> DataFrame:
    columns = catalog.dimension(name).columns
    return spark.createDataFrame(ROWS[name], ", ".join(f"{column.name} {column.type}" for column in columns))


def held(spark: SparkSession, catalog: Catalog) -> dict[str, Dimension]:
    return {
        name: Dimension(at, dimension(spark, catalog, name), catalog.dimension(name).key)
        for at, name in enumerate(dispatches_enriched.dimensions, 5)
    }


def enriched(spark: SparkSession, catalog: Catalog, *dispatches: dict[str, Any]) -> DataFrame:
    raw = raw_frame(spark, *[framed(7, body(dispatch)) for dispatch in dispatches])
    decoded = events(raw, WriterSchemas(f"{DISPATCHED}-value", SCHEMA, {7: SCHEMA}))
    lookups = dispatches_enriched.lookups
    return derived(dispatches_enriched, look_up(decoded, lookups, sides(lookups, held(spark, catalog))))


def rows(frame: DataFrame) -> list[Row]:
    return frame.orderBy("__record.offset").collect()


def test_the_result_is_what_the_contract_says(spark: SparkSession, catalog: Catalog) -> None:
    found = enriched(spark, catalog, a_dispatch()).drop("__reason", "__error", "__record").schema
    contract = spark.range(0).select(from_avro(F.lit(b""), catalog.schema(ENRICHED)).alias("event")).schema["event"]
    assert isinstance(contract.dataType, StructType)
    stamped = ("dimension_versions", "revision")
    assert {field.name: field.dataType.typeName() for field in found} == {
        field.name: field.dataType.typeName() for field in contract.dataType if field.name not in stamped
    }


def test_every_lookup_fills_in_its_fields(spark: SparkSession, catalog: Catalog) -> None:
    (row,) = rows(enriched(spark, catalog, a_dispatch()))
    assert row.unmatched == []
    assert (row.courier_name, row.origin_name, row.origin_timezone) == (
        "Umber Couriers Ltd.",
        "East Yard",
        "America/New_York",
    )
    assert (row.destination_name, row.destination_timezone) == ("Ivy Hill", None)
    assert (row.destination_latitude_degrees, row.destination_longitude_degrees) == (29.98, -95.34)
    assert (row.destination_altitude_feet, row.van_built_year, row.van_manufacturer) == (97, 1999, "FERROL")
    assert (row.van_model, row.van_engines, row.van_seats, row.van_engine_type) == (
        "F-824",
        2,
        149,
        "diesel",
    )


def test_lookups_without_a_row_are_named_in_order(spark: SparkSession, catalog: Catalog) -> None:
    dispatches = [
        a_dispatch(van_id="N0"),
        a_dispatch(van_id=None),
        a_dispatch(destination="BQN"),
        a_dispatch(courier="ZZ", origin="ZZZ", destination="BQN", van_id="N0"),
    ]
    found = rows(enriched(spark, catalog, *dispatches))
    assert [row.unmatched for row in found] == [
        ["vans"],
        ["vans"],
        ["depots.destination"],
        ["couriers", "depots.origin", "depots.destination", "vans"],
    ]
    assert [row.van_model for row in found] == [None, None, "F-824", None]


def test_as_many_rows_come_out_as_go_in(spark: SparkSession, catalog: Catalog) -> None:
    dispatches = [a_dispatch(courier=courier) for courier in ("UA", "UA", "ZZ", "UA")]
    found = rows(enriched(spark, catalog, *dispatches))
    assert [row["__record"].offset for row in found] == [0, 1, 2, 3]

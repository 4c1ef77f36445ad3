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
from spark.pipelines.departures_enriched import departures_enriched
from spark.records.decode import events
from spark.records.schemas import WriterSchemas
from tests.spark.examples import DEPARTED, ENRICHED, SCHEMA, a_departure, body, framed, raw_frame

ROWS: dict[str, list[tuple[Any, ...]]] = {
    "airlines": [("UA", "United Air Lines Inc.")],
    "airports": [
        ("EWR", "Newark Liberty Intl", 40.69, -74.17, 18, "America/New_York"),
        ("IAH", "George Bush Intercontinental", 29.98, -95.34, 97, None),
    ],
    "planes": [("N14228", 1999, "Fixed wing multi engine", "BOEING", "737-824", 2, 149, "Turbo-fan")],
}


def dimension(spark: SparkSession, catalog: Catalog, name: str) -> DataFrame:
    columns = catalog.dimension(name).columns
    return spark.createDataFrame(ROWS[name], ", ".join(f"{column.name} {column.type}" for column in columns))


def held(spark: SparkSession, catalog: Catalog) -> dict[str, Dimension]:
    return {
        name: Dimension(at, dimension(spark, catalog, name), catalog.dimension(name).key)
        for at, name in enumerate(departures_enriched.dimensions, 5)
    }


def enriched(spark: SparkSession, catalog: Catalog, *departures: dict[str, Any]) -> DataFrame:
    raw = raw_frame(spark, *[framed(7, body(departure)) for departure in departures])
    decoded = events(raw, WriterSchemas(f"{DEPARTED}-value", SCHEMA, {7: SCHEMA}))
    lookups = departures_enriched.lookups
    return derived(departures_enriched, look_up(decoded, lookups, sides(lookups, held(spark, catalog))))


def rows(frame: DataFrame) -> list[Row]:
    return frame.orderBy("__record.offset").collect()


def test_the_result_is_what_the_contract_says(spark: SparkSession, catalog: Catalog) -> None:
    found = enriched(spark, catalog, a_departure()).drop("__reason", "__error", "__record").schema
    contract = spark.range(0).select(from_avro(F.lit(b""), catalog.schema(ENRICHED)).alias("event")).schema["event"]
    assert isinstance(contract.dataType, StructType)
    stamped = ("dimension_versions", "revision")
    assert {field.name: field.dataType.typeName() for field in found} == {
        field.name: field.dataType.typeName() for field in contract.dataType if field.name not in stamped
    }


def test_every_lookup_fills_in_its_fields(spark: SparkSession, catalog: Catalog) -> None:
    (row,) = rows(enriched(spark, catalog, a_departure()))
    assert row.unmatched == []
    assert (row.airline_name, row.origin_name, row.origin_timezone) == (
        "United Air Lines Inc.",
        "Newark Liberty Intl",
        "America/New_York",
    )
    assert (row.destination_name, row.destination_timezone) == ("George Bush Intercontinental", None)
    assert (row.destination_latitude_degrees, row.destination_longitude_degrees) == (29.98, -95.34)
    assert (row.destination_altitude_feet, row.plane_built_year, row.plane_manufacturer) == (97, 1999, "BOEING")
    assert (row.plane_model, row.plane_engines, row.plane_seats, row.plane_engine_type) == (
        "737-824",
        2,
        149,
        "Turbo-fan",
    )


def test_lookups_without_a_row_are_named_in_order(spark: SparkSession, catalog: Catalog) -> None:
    departures = [
        a_departure(tail_number="N0"),
        a_departure(tail_number=None),
        a_departure(destination="BQN"),
        a_departure(carrier="ZZ", origin="ZZZ", destination="BQN", tail_number="N0"),
    ]
    found = rows(enriched(spark, catalog, *departures))
    assert [row.unmatched for row in found] == [
        ["planes"],
        ["planes"],
        ["airports.destination"],
        ["airlines", "airports.origin", "airports.destination", "planes"],
    ]
    assert [row.plane_model for row in found] == [None, None, "737-824", None]


def test_as_many_rows_come_out_as_go_in(spark: SparkSession, catalog: Catalog) -> None:
    departures = [a_departure(carrier=carrier) for carrier in ("UA", "UA", "ZZ", "UA")]
    found = rows(enriched(spark, catalog, *departures))
    assert [row["__record"].offset for row in found] == [0, 1, 2, 3]

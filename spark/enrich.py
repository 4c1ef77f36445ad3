"""The reference enrichment: `enrich`."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

DEPARTURE = (
    "flight_id",
    "carrier",
    "flight_number",
    "tail_number",
    "origin",
    "destination",
    "flight_date",
    "scheduled_departure_at",
    "departed_at",
    "departure_delay_minutes",
    "distance_miles",
)
LOOKUPS = ("airlines", "airports.origin", "airports.destination", "planes")


def enrich(departures: DataFrame, airlines: DataFrame, airports: DataFrame, planes: DataFrame) -> DataFrame:
    """Fill in airline, airports and plane of each departure; rows out = rows in.

    `departures` has the columns of `DEPARTURE`, then `dimension_versions` and `revision` as they are to be stamped on
    the result, then any that pass through untouched. The dimensions have the columns of their contracts; their keys
    are unique, which the contract says and the dimension service checks. The result has the fields of
    flights.departed.enriched.v1 and after them what passed through. `unmatched` names the lookups that had no row, a
    departure without tail number included.
    """
    carried = [name for name in departures.columns if name not in DEPARTURE]
    airline, origin, destination, plane = (
        _prefixed(airlines, "airline"),
        _prefixed(airports, "origin"),
        _prefixed(airports, "destination"),
        _prefixed(planes, "plane"),
    )
    joined = (
        departures.join(F.broadcast(airline), F.col("carrier") == F.col("airline__carrier"), how="left")
        .join(F.broadcast(origin), F.col("origin") == F.col("origin__airport"), how="left")
        .join(F.broadcast(destination), F.col("destination") == F.col("destination__airport"), how="left")
        .join(F.broadcast(plane), F.col("tail_number") == F.col("plane__tail_number"), how="left")
    )
    found = ("airline__carrier", "origin__airport", "destination__airport", "plane__tail_number")
    missing = [F.when(F.col(key).isNull(), F.lit(name)).otherwise("") for key, name in zip(found, LOOKUPS, strict=True)]
    return joined.select(
        *DEPARTURE,
        F.col("airline__name").alias("airline_name"),
        F.col("origin__name").alias("origin_name"),
        F.col("origin__timezone").alias("origin_timezone"),
        F.col("destination__name").alias("destination_name"),
        F.col("destination__timezone").alias("destination_timezone"),
        F.col("destination__latitude_degrees").alias("destination_latitude_degrees"),
        F.col("destination__longitude_degrees").alias("destination_longitude_degrees"),
        F.col("destination__altitude_feet").alias("destination_altitude_feet"),
        F.col("plane__built_year").alias("plane_built_year"),
        F.col("plane__manufacturer").alias("plane_manufacturer"),
        F.col("plane__model").alias("plane_model"),
        F.col("plane__engines").alias("plane_engines"),
        F.col("plane__seats").alias("plane_seats"),
        F.col("plane__engine_type").alias("plane_engine_type"),
        # Not filter(): a lambda would take the whole stage out of Spark's code generation.
        F.array_remove(F.array(*missing), "").alias("unmatched"),
        *carried,
    )


def _prefixed(dimension: DataFrame, prefix: str) -> DataFrame:
    return dimension.select([F.col(name).alias(f"{prefix}__{name}") for name in dimension.columns])

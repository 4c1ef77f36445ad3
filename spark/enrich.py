"""The reference enrichment: `enrich`."""

from __future__ import annotations

import functools

from pyspark.sql import Column, DataFrame
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
LOOKUPS = {
    "airlines": "airline.carrier",
    "airports.origin": "origin.airport",
    "airports.destination": "destination.airport",
    "planes": "plane.tail_number",
}
"""Each lookup, and the key that is null where it found no row."""

LOOKED_UP = {
    "airline_name": "airline.name",
    "origin_name": "origin.name",
    "origin_timezone": "origin.timezone",
    "destination_name": "destination.name",
    "destination_timezone": "destination.timezone",
    "destination_latitude_degrees": "destination.latitude_degrees",
    "destination_longitude_degrees": "destination.longitude_degrees",
    "destination_altitude_feet": "destination.altitude_feet",
    "plane_built_year": "plane.built_year",
    "plane_manufacturer": "plane.manufacturer",
    "plane_model": "plane.model",
    "plane_engines": "plane.engines",
    "plane_seats": "plane.seats",
    "plane_engine_type": "plane.engine_type",
}
"""Each field that is filled in, and where it comes from."""


def enrich(departures: DataFrame, airlines: DataFrame, airports: DataFrame, planes: DataFrame) -> DataFrame:
    """Fill in airline, airports and plane of each departure; rows out = rows in.

    `departures` has the columns of `DEPARTURE`, then `dimension_versions` and `revision` as they are to be stamped on
    the result, then any that pass through untouched. The dimensions have the columns of their contracts; their keys
    are unique, which the contract says and the dimension service checks. The result has the fields of
    flights.departed.enriched.v1 and after them what passed through. `unmatched` names the lookups that had no row, a
    departure without tail number included.
    """
    carried = [name for name in departures.columns if name not in DEPARTURE]
    joined = (
        departures.alias("departure")
        .join(F.broadcast(airlines.alias("airline")), _parsed("departure.carrier = airline.carrier"), how="left")
        .join(F.broadcast(airports.alias("origin")), _parsed("departure.origin = origin.airport"), how="left")
        .join(
            F.broadcast(airports.alias("destination")),
            _parsed("departure.destination = destination.airport"),
            how="left",
        )
        .join(F.broadcast(planes.alias("plane")), _parsed("departure.tail_number = plane.tail_number"), how="left")
    )
    return joined.select(*_enriched(), *[f"departure.{name}" for name in carried])


@functools.cache
def _parsed(condition: str) -> Column:
    """Kept, like the fields: parsing them would be a tenth of a small batch."""
    return F.expr(condition)


@functools.cache
def _enriched() -> list[Column]:
    """The fields of an enriched departure."""
    # Not filter(): a lambda would take the whole stage out of Spark's code generation.
    missing = ", ".join(f"if({key} IS NULL, '{lookup}', '')" for lookup, key in LOOKUPS.items())
    return [
        *[F.col(f"departure.{name}") for name in DEPARTURE],
        *[F.col(source).alias(name) for name, source in LOOKED_UP.items()],
        F.expr(f"array_remove(array({missing}), '') AS unmatched"),
    ]

"""Every departed flight with its airline, airports and plane."""

from __future__ import annotations

from pyspark.sql import DataFrame

from contracts import topics
from spark.pipeline import Lookup, pipeline

LOOKUPS = (
    Lookup("airlines", dimension="airlines", by="carrier", fields={"airline_name": "name"}),
    Lookup(
        "airports.origin",
        dimension="airports",
        by="origin",
        fields={"origin_name": "name", "origin_timezone": "timezone"},
    ),
    Lookup(
        "airports.destination",
        dimension="airports",
        by="destination",
        fields={
            "destination_name": "name",
            "destination_timezone": "timezone",
            "destination_latitude_degrees": "latitude_degrees",
            "destination_longitude_degrees": "longitude_degrees",
            "destination_altitude_feet": "altitude_feet",
        },
    ),
    Lookup(
        "planes",
        dimension="planes",
        by="tail_number",
        fields={
            "plane_built_year": "built_year",
            "plane_manufacturer": "manufacturer",
            "plane_model": "model",
            "plane_engines": "engines",
            "plane_seats": "seats",
            "plane_engine_type": "engine_type",
        },
    ),
)


@pipeline(departures=topics.FLIGHTS_DEPARTED, writes=topics.FLIGHTS_DEPARTED_ENRICHED, lookups=LOOKUPS)
def departures_enriched(departures: DataFrame) -> DataFrame:
    """The frame holds the looked-up fields already. Compute other fields here, with expressions."""
    return departures

"""Every arrived flight with its airline, destination and plane, and how fast it was."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from contracts import topics
from spark.pipeline import Lookup, pipeline

LOOKUPS = (
    Lookup("airlines", dimension="airlines", by="carrier", fields={"airline_name": "name"}),
    Lookup(
        "airports.destination",
        dimension="airports",
        by="destination",
        fields={"destination_name": "name", "destination_timezone": "timezone"},
    ),
    Lookup("planes", dimension="planes", by="tail_number", fields={"plane_model": "model", "plane_seats": "seats"}),
)


@pipeline(arrivals=topics.FLIGHTS_ARRIVED, writes=topics.FLIGHTS_ARRIVED_ENRICHED, lookups=LOOKUPS)
def arrivals_enriched(arrivals: DataFrame) -> DataFrame:
    """The frame holds the looked-up fields already."""
    hours = F.col("air_time_minutes") / 60
    return arrivals.withColumn("ground_speed_miles_per_hour", F.col("distance_miles") / hours)

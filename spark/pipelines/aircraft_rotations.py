"""How delay goes on from leg to leg of an aircraft: its rotations, departures from New York that follow each other closely."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from contracts import topics
from spark.pipeline import pipeline


@pipeline(departures=topics.FLIGHTS_DEPARTED, writes=topics.FLIGHTS_DEPARTED_ROTATIONS, output="append")
def aircraft_rotations(departures: DataFrame) -> DataFrame:
    """The delay that a rotation has caught up, or carries on, is that of its last leg beside that of its first. Which these are, their times
    tell, and not the order of the records."""
    # From a near airport an aircraft is back, and leaves again, within six hours. From JFK it flies farther. Legs to New York are not in the topic.
    gap = F.when(F.col("origin") == "JFK", "8 hours").otherwise("6 hours")
    at, delay = F.unix_micros("departed_at"), F.struct("departed_at", "departure_delay_minutes")
    sessions = (
        departures.where(F.col("tail_number").isNotNull())
        .groupBy(F.session_window("departed_at", gap), "tail_number")
        .agg(
            F.count("*").alias("legs"),
            ((F.max(at) - F.min(at)) / 3_600_000_000).alias("hours"),
            F.min(delay)["departure_delay_minutes"].alias("delay_first_minutes"),
            F.max(delay)["departure_delay_minutes"].alias("delay_last_minutes"),
            F.max("departure_delay_minutes").alias("delay_max_minutes"),
            F.sum("departure_delay_minutes").alias("delay_sum_minutes"),
        )
    )
    end = F.date_format("session_window.end", "yyyy-MM-dd'T'HH:mm:ss'Z'")
    return sessions.select(
        "*",
        F.concat_ws("/", "tail_number", end).alias("rotation_id"),
        F.col("session_window.start").alias("begins_at"),
        F.col("session_window.end").alias("ends_at"),
    )

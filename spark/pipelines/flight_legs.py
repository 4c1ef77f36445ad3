"""Every departed flight with its arrival, or without, if none came within twenty hours."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from contracts import topics
from spark.pipeline import pipeline


@pipeline(departures=topics.FLIGHTS_DEPARTED, arrivals=topics.FLIGHTS_ARRIVED, writes=topics.FLIGHTS_DEPARTED_LEGS)
def flight_legs(departures: DataFrame, arrivals: DataFrame) -> DataFrame:
    """The bounds by both times tell Spark how long it has to remember a flight."""
    arrived = arrivals.select(F.col("flight_id").alias("arrived_flight_id"), "arrived_at", "arrival_delay_minutes")
    is_its_own = (
        (F.col("flight_id") == F.col("arrived_flight_id"))
        & (F.col("arrived_at") >= F.col("departed_at"))
        & (F.col("arrived_at") <= F.col("departed_at") + F.expr("INTERVAL 20 HOURS"))
    )
    seconds = F.unix_timestamp("arrived_at") - F.unix_timestamp("departed_at")
    legs = departures.join(arrived, is_its_own, how="left_outer")
    return legs.withColumn("gate_to_gate_minutes", seconds / 60)

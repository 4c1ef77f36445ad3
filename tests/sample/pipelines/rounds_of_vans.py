"""How late the parcels of a van are, from round to round."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark.pipeline import pipeline
from tests.sample import topics


@pipeline(dispatches=topics.PARCELS_DISPATCHED, writes=topics.PARCELS_DISPATCHED_ROUNDS, output="append")
def rounds_of_vans(dispatches: DataFrame) -> DataFrame:
    """A round goes on for half an hour behind its last parcel, from STH for an hour."""
    gap = F.when(F.col("origin") == "STH", "60 minutes").otherwise("30 minutes")
    at, delay = F.unix_micros("dispatched_at"), F.struct("dispatched_at", "late_minutes")
    sessions = (
        dispatches.where(F.col("van_id").isNotNull())
        .groupBy(F.session_window("dispatched_at", gap), "van_id")
        .agg(
            F.count("*").alias("parcels"),
            ((F.max(at) - F.min(at)) / 3_600_000_000).alias("hours"),
            F.min(delay)["late_minutes"].alias("delay_first_minutes"),
            F.max(delay)["late_minutes"].alias("delay_last_minutes"),
            F.max("late_minutes").alias("delay_max_minutes"),
            F.sum("late_minutes").alias("delay_sum_minutes"),
        )
    )
    end = F.date_format("session_window.end", "yyyy-MM-dd'T'HH:mm:ss'Z'")
    return sessions.select(
        "*",
        F.concat_ws("/", "van_id", end).alias("round_id"),
        F.col("session_window.start").alias("begins_at"),
        F.col("session_window.end").alias("ends_at"),
    )

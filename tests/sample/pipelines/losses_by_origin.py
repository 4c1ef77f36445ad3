"""How many parcels each depot loses: dispatches and losses, in windows of an hour that begin every quarter of an hour."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark.pipeline import pipeline
from tests.sample import topics


@pipeline(
    dispatches=topics.PARCELS_DISPATCHED,
    losses=topics.PARCELS_LOST,
    writes=topics.PARCELS_DISPATCHED_LOSSES,
    output="update",
)
def losses_by_origin(dispatches: DataFrame, losses: DataFrame) -> DataFrame:
    """A lost parcel is of the time when it was due. It has no delay, so means, percentiles and counts of delays are of dispatches alone."""
    left = dispatches.select(F.col("dispatched_at").alias("at"), "origin", F.lit(0).alias("lost"), "late_minutes")
    stayed = losses.select(F.col("due_at").alias("at"), "origin", F.lit(1).alias("lost"))
    both = left.unionByName(stayed, allowMissingColumns=True)
    windows = both.groupBy(F.window("at", "1 hour", "15 minutes"), "origin").agg(
        F.count("late_minutes").alias("dispatches"),
        F.sum("lost").alias("losses"),
        F.avg("lost").alias("lost_share"),
        F.avg("late_minutes").alias("delay_mean_minutes"),
        F.percentile("late_minutes", 0.95).alias("delay_p95_minutes"),
    )
    begin = F.date_format("window.start", "yyyy-MM-dd'T'HH:mm:ss'Z'")
    return windows.select(
        "*",
        F.concat_ws("/", "origin", begin).alias("window_id"),
        F.col("window.start").alias("begins_at"),
        F.col("window.end").alias("ends_at"),
    )

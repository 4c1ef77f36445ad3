"""How late parcels leave each depot, in windows of fifteen minutes."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark.pipeline import pipeline
from tests.sample import topics


@pipeline(dispatches=topics.PARCELS_DISPATCHED, writes=topics.PARCELS_DISPATCHED_DELAYS, output="update")
def delays_by_origin(dispatches: DataFrame) -> DataFrame:
    """A window is written whenever a batch has changed it. `percentile` is exact: it keeps a count of each number of minutes."""
    windows = dispatches.groupBy(F.window("dispatched_at", "15 minutes"), "origin").agg(
        F.count("*").alias("dispatches"),
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

"""The lines with the highest mean delay of their dispatches."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark.pipeline import pipeline
from tests.sample import topics

_ENOUGH = 2


@pipeline(dispatches=topics.PARCELS_DISPATCHED, writes=topics.PARCELS_DISPATCHED_SLOWEST)
def slowest_lines(dispatches: DataFrame) -> DataFrame:
    """The whole list is written whenever a batch has dispatches; the platform numbers its places."""
    lines = dispatches.groupBy("origin", "destination").agg(
        F.count("*").alias("dispatches"),
        F.avg("late_minutes").alias("late_mean_minutes"),
        F.max("dispatched_at").alias("last_dispatched_at"),
    )
    slowest = F.when(F.col("dispatches") >= _ENOUGH, F.col("late_mean_minutes")).desc_nulls_last()
    return lines.orderBy(slowest, "origin", "destination").limit(3)

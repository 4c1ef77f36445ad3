"""How punctual each airport is: departures and cancellations, in windows of an hour that begin every five minutes."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from contracts import topics
from spark.pipeline import pipeline


@pipeline(
    departures=topics.FLIGHTS_DEPARTED,
    cancellations=topics.FLIGHTS_CANCELLED,
    writes=topics.FLIGHTS_DEPARTED_PUNCTUALITY,
    output="update",
)
def punctuality_by_origin(departures: DataFrame, cancellations: DataFrame) -> DataFrame:
    """A departure counts in the windows of the time when it left, a cancelled flight in those of its scheduled departure. The latter has no delay, so
    means, percentiles and counts of delays are of departures alone.
    """
    departed = departures.select(
        F.col("departed_at").alias("at"), "origin", F.lit(0).alias("cancelled"), "departure_delay_minutes"
    )
    cancelled = cancellations.select(F.col("scheduled_departure_at").alias("at"), "origin", F.lit(1).alias("cancelled"))
    both = departed.unionByName(cancelled, allowMissingColumns=True)
    windows = both.groupBy(F.window("at", "1 hour", "5 minutes"), "origin").agg(
        F.count("departure_delay_minutes").alias("departures"),
        F.sum("cancelled").alias("cancellations"),
        F.avg("cancelled").alias("cancelled_share"),
        F.avg("departure_delay_minutes").alias("delay_mean_minutes"),
        F.percentile("departure_delay_minutes", 0.95).alias("delay_p95_minutes"),
    )
    begin = F.date_format("window.start", "yyyy-MM-dd'T'HH:mm:ss'Z'")
    return windows.select(
        "*",
        F.concat_ws("/", "origin", begin).alias("window_id"),
        F.col("window.start").alias("begins_at"),
        F.col("window.end").alias("ends_at"),
    )

"""The routes with the highest mean delay of their departures."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from contracts import topics
from spark.pipeline import pipeline

_ENOUGH = 20
"""Departures, from which on a mean is meaningful."""


@pipeline(departures=topics.FLIGHTS_DEPARTED, writes=topics.FLIGHTS_DEPARTED_WORSTROUTES)
def worst_routes(departures: DataFrame) -> DataFrame:
    """The whole list is written whenever a batch has departures; the platform numbers its places."""
    routes = departures.groupBy("origin", "destination").agg(
        F.count("*").alias("departures"),
        F.avg("departure_delay_minutes").alias("delay_mean_minutes"),
        F.max("departed_at").alias("last_departed_at"),
    )
    worst = F.when(F.col("departures") >= _ENOUGH, F.col("delay_mean_minutes")).desc_nulls_last()
    return routes.orderBy(worst, "origin", "destination").limit(20)

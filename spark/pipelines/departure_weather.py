"""Every departed flight with the weather at its origin in the hour in which it left, or without, if nobody observed that hour."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from contracts import topics
from spark.pipeline import pipeline


@pipeline(departures=topics.FLIGHTS_DEPARTED, readings=topics.WEATHER_OBSERVED, writes=topics.FLIGHTS_DEPARTED_WEATHER)
def departure_weather(departures: DataFrame, readings: DataFrame) -> DataFrame:
    """The hour is a key of the state, so a flight is compared with the readings of one hour; the bounds tell Spark how long it has to remember."""
    hour = F.expr("INTERVAL 1 HOUR")
    is_of_its_hour = (
        (F.col("origin") == F.col("station"))
        & (F.date_trunc("HOUR", "departed_at") == F.date_trunc("HOUR", "observed_at"))
        & (F.col("observed_at") >= F.col("departed_at") - hour)
        & (F.col("observed_at") <= F.col("departed_at") + hour)
    )
    return departures.join(readings, is_of_its_hour, how="left_outer")

"""The departed flights of 2,000 miles or more, with fewer fields."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from contracts import topics
from spark.pipeline import pipeline


@pipeline(departures=topics.FLIGHTS_DEPARTED, writes=topics.FLIGHTS_DEPARTED_LONGHAUL)
def long_haul_departures(departures: DataFrame) -> DataFrame:
    """A filter: fields that the target's schema lacks are dropped by the platform."""
    return departures.where(F.col("distance_miles") >= 2000)

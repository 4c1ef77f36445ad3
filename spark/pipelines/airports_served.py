"""Each airport that an arrived flight has served: two records of one."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from contracts import topics
from spark.pipeline import pipeline


@pipeline(arrivals=topics.FLIGHTS_ARRIVED, writes=topics.AIRPORTS_SERVED)
def airports_served(arrivals: DataFrame) -> DataFrame:
    """`inline` comes last: it makes an event of each struct of an array, with the struct's fields as columns."""
    return arrivals.select("*", F.inline(F.array(_served("origin"), _served("destination"))))


def _served(field: str) -> Column:
    return F.struct(F.lit(field).alias("served_as"), F.col(field).alias("airport"))

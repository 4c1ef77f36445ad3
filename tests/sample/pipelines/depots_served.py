"""Each depot that has served a delivered parcel: two records of one."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark.pipeline import pipeline
from tests.sample import topics


@pipeline(deliveries=topics.PARCELS_DELIVERED, writes=topics.DEPOTS_SERVED)
def depots_served(deliveries: DataFrame) -> DataFrame:
    """`inline` comes last: it makes an event of each struct of an array, with the struct's fields as columns."""
    return deliveries.select("*", F.inline(F.array(_served("origin"), _served("destination"))))


def _served(field: str) -> Column:
    return F.struct(F.lit(field).alias("served_as"), F.col(field).alias("depot"))

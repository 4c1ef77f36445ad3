"""The dispatched parcels of 2,000 grams or more, with fewer fields."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark.pipeline import pipeline
from tests.sample import topics


@pipeline(dispatches=topics.PARCELS_DISPATCHED, writes=topics.PARCELS_DISPATCHED_HEAVY)
def heavy_parcels(dispatches: DataFrame) -> DataFrame:
    """A filter: fields that the target's schema lacks are dropped by the platform."""
    return dispatches.where(F.col("weight_grams") >= 2000)

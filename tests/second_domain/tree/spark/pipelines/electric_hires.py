"""The started hires of bicycles with a motor."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from contracts import topics
from spark.pipeline import pipeline


@pipeline(hires=topics.HIRES_STARTED, writes=topics.HIRES_STARTED_ELECTRIC)
def electric_hires(hires: DataFrame) -> DataFrame:
    """A filter: fields that the target's schema lacks are dropped by the platform."""
    return hires.where(F.col("kind") == "electric")

"""Each dispatch once, though a producer may send it again."""

from __future__ import annotations

from pyspark.sql import DataFrame

from spark.pipeline import pipeline
from tests.sample import topics


@pipeline(dispatches=topics.PARCELS_DISPATCHED, writes=topics.PARCELS_DISPATCHED_ONCE)
def dispatches_once(dispatches: DataFrame) -> DataFrame:
    """The parcel's id names a dispatch: no other parcel ever has it."""
    return dispatches.dropDuplicatesWithinWatermark(["parcel_id"])

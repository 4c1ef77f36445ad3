"""Every dispatched parcel with its delivery, or without, if none came within twenty hours."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark.pipeline import pipeline
from tests.sample import topics


@pipeline(
    dispatches=topics.PARCELS_DISPATCHED,
    deliveries=topics.PARCELS_DELIVERED,
    writes=topics.PARCELS_DISPATCHED_TRIPS,
)
def parcel_trips(dispatches: DataFrame, deliveries: DataFrame) -> DataFrame:
    """The bounds by both times tell Spark how long it has to remember a parcel."""
    delivered = deliveries.select(
        F.col("parcel_id").alias("delivered_parcel_id"), "delivered_at", "delivered_late_minutes"
    )
    is_its_own = (
        (F.col("parcel_id") == F.col("delivered_parcel_id"))
        & (F.col("delivered_at") >= F.col("dispatched_at"))
        & (F.col("delivered_at") <= F.col("dispatched_at") + F.expr("INTERVAL 20 HOURS"))
    )
    return dispatches.join(delivered, is_its_own, how="left_outer")

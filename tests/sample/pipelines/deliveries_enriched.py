"""Every delivered parcel with its courier, destination and van, and how much was carried in an hour."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark.pipeline import Lookup, pipeline
from tests.sample import topics

LOOKUPS = (
    Lookup("couriers", dimension="couriers", by="courier", fields={"courier_name": "name"}),
    Lookup(
        "depots.destination",
        dimension="depots",
        by="destination",
        fields={"destination_name": "name", "destination_timezone": "timezone"},
    ),
    Lookup("vans", dimension="vans", by="van_id", fields={"van_model": "model", "van_seats": "seats"}),
)


@pipeline(deliveries=topics.PARCELS_DELIVERED, writes=topics.PARCELS_DELIVERED_ENRICHED, lookups=LOOKUPS)
def deliveries_enriched(deliveries: DataFrame) -> DataFrame:
    """The frame holds the looked-up fields already."""
    hours = F.col("on_road_minutes") / 60
    return deliveries.withColumn("carried_grams_per_hour", F.col("weight_grams") / hours)

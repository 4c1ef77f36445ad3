"""Every ended hire with its station and its charge."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from contracts import topics
from spark.pipeline import Lookup, pipeline

LOOKUPS = (
    Lookup(
        "stations", dimension="stations", by="station_id", fields={"station_name": "name", "station_docks": "docks"}
    ),
)


@pipeline(hires=topics.HIRES_ENDED, writes=topics.HIRES_ENDED_ENRICHED, lookups=LOOKUPS)
def hires_enriched(hires: DataFrame) -> DataFrame:
    """The frame holds the looked-up fields already."""
    half_hours = F.ceil(F.col("duration_minutes") / 30)
    return hires.withColumn("charge_cents", (half_hours * 20).cast("int"))

"""Each departure once, though a producer may send it again."""

from __future__ import annotations

from pyspark.sql import DataFrame

from contracts import topics
from spark.pipeline import pipeline


@pipeline(departures=topics.FLIGHTS_DEPARTED, writes=topics.FLIGHTS_DEPARTED_ONCE)
def departures_once(departures: DataFrame) -> DataFrame:
    """The flight's id names a departure: no other flight ever has it."""
    return departures.dropDuplicatesWithinWatermark(["flight_id"])

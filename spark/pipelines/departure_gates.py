"""Every departed flight with the gate that was last announced for its line."""

from __future__ import annotations

from pyspark.sql import DataFrame

from contracts import topics
from spark.pipeline import Lookup, pipeline

LOOKUPS = (
    Lookup(
        "gates",
        dimension="gates",
        by=("carrier", "flight_number", "origin"),
        fields={"gate": "gate", "gate_announced_for": "flight_id"},
    ),
)


@pipeline(departures=topics.FLIGHTS_DEPARTED, writes=topics.FLIGHTS_DEPARTED_GATES, lookups=LOOKUPS)
def departure_gates(departures: DataFrame) -> DataFrame:
    """The dimension is made of a topic: the record names its version, and that the positions up to which the topic was read."""
    return departures

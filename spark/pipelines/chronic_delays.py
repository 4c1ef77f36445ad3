"""Departures that were late as the two before them of the same aircraft were: its third late leg in a row."""

from __future__ import annotations

from datetime import timedelta

from pyspark.sql import DataFrame

from contracts import topics
from spark.pipeline import Event, Memory, Remembered, pipeline

_LATE_MINUTES = 15
_WEIGHT = 0.25
"""Of the newest leg in the mean of all."""


def _after(leg: Event, before: Remembered | None) -> Remembered:
    delay = leg["departure_delay_minutes"]
    in_a_row, mean = (0, float(delay)) if before is None else (before["late_in_a_row"], before["delay_mean_minutes"])
    return {
        "late_in_a_row": in_a_row + 1 if delay > _LATE_MINUTES else 0,
        "delay_mean_minutes": mean + _WEIGHT * (delay - mean),
    }


@pipeline(
    departures=topics.FLIGHTS_DEPARTED,
    writes=topics.FLIGHTS_DEPARTED_CHRONIC,
    memory=Memory(
        of="tail_number",
        reads=("departure_delay_minutes",),
        fields={"late_in_a_row": "int", "delay_mean_minutes": "double"},
        after=_after,
        forgets_after=timedelta(days=3),
    ),
)
def chronic_delays(departures: DataFrame) -> DataFrame:
    """A departure without a tail number is of no aircraft that could be remembered."""
    return departures.where("late_in_a_row = 3")

"""Parcels that left late, with how many before them did in the same van."""

from __future__ import annotations

from datetime import timedelta

from pyspark.sql import DataFrame

from spark.pipeline import Event, Memory, Remembered, pipeline
from tests.sample import topics


def after(parcel: Event, before: Remembered | None) -> Remembered:
    """A parcel that is late by a million minutes can't be counted."""
    late = parcel["late_minutes"]
    if late >= 1_000_000:
        raise ArithmeticError(f"late by {late} minutes")
    in_a_row, mean = (0, float(late)) if before is None else (before["late_in_a_row"], before["late_mean_minutes"])
    return {"late_in_a_row": in_a_row + 1 if late > 0 else 0, "late_mean_minutes": (mean + late) / 2}


MEMORY = Memory(
    of="van_id",
    reads=("late_minutes",),
    fields={"late_in_a_row": "int", "late_mean_minutes": "double"},
    after=after,
    forgets_after=timedelta(hours=4),
)


@pipeline(dispatches=topics.PARCELS_DISPATCHED, writes=topics.PARCELS_DISPATCHED_COUNTED, memory=MEMORY)
def late_parcels_of_vans(dispatches: DataFrame) -> DataFrame:
    """A parcel without a van has no memory: its fields are null."""
    return dispatches.where("late_in_a_row > 0")

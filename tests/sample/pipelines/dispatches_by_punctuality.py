"""The dispatched parcels, each in one of two topics: those that are late, and those that are not."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark.pipeline import pipeline
from tests.sample import topics


@pipeline(
    dispatches=topics.PARCELS_DISPATCHED,
    writes={"overdue": topics.PARCELS_DISPATCHED_OVERDUE, "punctual": topics.PARCELS_DISPATCHED_PUNCTUAL},
)
def dispatches_by_punctuality(dispatches: DataFrame) -> DataFrame:
    """A branch: `branch` names the topic of each row. A parcel without weight is none: it goes nowhere."""
    late = F.col("late_minutes")
    branch = F.when(late > 15, "overdue").otherwise("punctual")
    return dispatches.withColumns({"late_hours": late / 60, "branch": F.when(F.col("weight_grams") > 0, branch)})

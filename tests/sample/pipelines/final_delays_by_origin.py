"""How late parcels have left each depot, in windows of fifteen minutes, each once when it is over."""

from __future__ import annotations

from pyspark.sql import DataFrame

from spark.pipeline import pipeline
from tests.sample import topics
from tests.sample.pipelines.delays_by_origin import delays_by_origin


@pipeline(dispatches=topics.PARCELS_DISPATCHED, writes=topics.PARCELS_DISPATCHED_FINALDELAYS, output="append")
def final_delays_by_origin(dispatches: DataFrame) -> DataFrame:
    """The same windows: only when they are written differs."""
    return delays_by_origin(dispatches)

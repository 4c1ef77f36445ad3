"""How late flights have left each airport, in windows of fifteen minutes, each once when it is over."""

from __future__ import annotations

from pyspark.sql import DataFrame

from contracts import topics
from spark.pipeline import pipeline
from spark.pipelines.delays_by_origin import delays_by_origin


@pipeline(departures=topics.FLIGHTS_DEPARTED, writes=topics.FLIGHTS_DEPARTED_FINALDELAYS, output="append")
def final_delays_by_origin(departures: DataFrame) -> DataFrame:
    """The same windows: only when they are written differs."""
    return delays_by_origin(departures)

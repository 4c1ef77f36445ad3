"""How late an event may be, the contract says: a function that says it as well is refused."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from contracts.definitions.catalog import Catalog
from spark.derivation.stateful.kinds import stateful
from spark.derivation.stateful.stateful_rows import Read
from spark.pipeline import Pipeline
from spark.records.schemas import WriterSchemas
from spark.runtime.errors import PipelineUnfit
from tests.sample.pipelines.delays_by_origin import delays_by_origin
from tests.sample.pipelines.dispatches_once import dispatches_once
from tests.sample.pipelines.parcel_trips import parcel_trips
from tests.spark.examples import RAW


def _with_another_watermark(function: Callable[..., DataFrame]) -> Callable[..., DataFrame]:
    return lambda first, *others: function(first.withWatermark("dispatched_at", "1 hour"), *others)


@pytest.mark.parametrize("pipeline", [delays_by_origin, parcel_trips, dispatches_once], ids=lambda each: each.name)
def test_a_function_that_says_how_late_an_event_may_be_is_refused_where_it_is_a_stream(
    spark: SparkSession, catalog: Catalog, tmp_path: Path, pipeline: Pipeline
) -> None:
    raw = spark.readStream.schema(RAW).parquet(str(tmp_path))
    reads = [
        Read(raw, WriterSchemas(catalog.topic(each).subject, catalog.schema(each), {7: catalog.schema(each)}))
        for each in pipeline.sources
    ]
    stateful(spark, pipeline, catalog, 300).stream(reads)

    changed = dataclasses.replace(pipeline, function=_with_another_watermark(pipeline.function))
    with pytest.raises(
        PipelineUnfit, match=f"calls withWatermark, and the contract of {pipeline.target} says how late"
    ):
        stateful(spark, changed, catalog, 300).stream(reads)

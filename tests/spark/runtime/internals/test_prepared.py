"""One plan over batch after batch."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark.runtime.internals.prepared import Prepared


def told(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """All rows of a task in one text."""
    rows = [row for batch in batches for row in batch.to_pylist()]
    yield pa.RecordBatch.from_pydict({"told": [json.dumps(rows)]})


def test_each_batch_gives_its_own_rows_and_the_query_is_planned_once(spark: SparkSession) -> None:
    names = spark.createDataFrame([(1, "one"), (3, "three")], "number INT, name STRING")
    planned = []

    def query(batch: DataFrame) -> DataFrame:
        planned.append(batch)
        joined = batch.where("number > 0").join(F.broadcast(names), "number", "left")
        return joined.select("number", "name").mapInArrow(told, "told STRING")

    prepared = Prepared(query)
    for partitions, numbers in [(1, [1, 2, 0]), (3, [3, 0, 4, 1]), (2, [])]:
        found = [json.loads(text) for text in prepared.collect(batch_of(spark, numbers, partitions))]
        assert len(found) == partitions
        rows = sorted((row["number"], row["name"]) for task in found for row in task)
        assert rows == sorted((each, {1: "one", 3: "three"}.get(each)) for each in numbers if each)
    assert len(planned) == 1


def test_a_query_that_shuffles_is_refused(spark: SparkSession) -> None:
    prepared = Prepared(lambda batch: batch.groupBy("number").count().select(F.col("number").cast("string")))
    prepared.collect(batch_of(spark, [1], 1))
    with pytest.raises(TypeError, match="more than steps over each partition's rows"):
        prepared.collect(batch_of(spark, [1], 1))


def batch_of(spark: SparkSession, numbers: list[int], partitions: int) -> DataFrame:
    """Rows that Spark knows as an RDD, like those that it hands to `foreachBatch`."""
    return spark.createDataFrame(spark.sparkContext.parallelize([(n,) for n in numbers], partitions), "number INT")

"""One plan over batch after batch."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark.prepared import Prepared


def test_each_batch_gives_its_own_rows_and_the_query_is_planned_once(spark: SparkSession) -> None:
    names = spark.createDataFrame([(1, "one"), (3, "three")], "number INT, name STRING")
    planned = []

    def query(batch: DataFrame) -> DataFrame:
        planned.append(batch)
        return batch.where("number > 0").join(F.broadcast(names), "number", "left").select("number", "name")

    prepared = Prepared(query)
    for partitions, numbers in [(1, [1, 2, 0]), (3, [3, 0, 4, 1]), (2, [])]:
        found = [(row.getInt(0), row.get(1)) for row in prepared.collect(batch_of(spark, numbers, partitions))]
        assert sorted(found) == sorted((each, {1: "one", 3: "three"}.get(each)) for each in numbers if each)
    assert len(planned) == 1


def batch_of(spark: SparkSession, numbers: list[int], partitions: int) -> DataFrame:
    """Rows that Spark knows as an RDD, like those that it hands to `foreachBatch`."""
    return spark.createDataFrame(spark.sparkContext.parallelize([(n,) for n in numbers], partitions), "number INT")

"""What a function makes of groups whose parts are stored."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark.runtime.internals.plans import NotRowByRow
from spark.runtime.internals.stored import of_groups

PARTS = "name STRING, count LONG, sum DOUBLE, of LONG, least INT"
"""Those of `grouped`, as Spark's first step of a grouping has them."""


def grouped(spark: SparkSession) -> DataFrame:
    given = spark.createDataFrame(spark.sparkContext.emptyRDD(), "name STRING, amount INT")
    groups = given.groupBy("name").agg(
        F.count("*").alias("records"), F.avg("amount").alias("mean"), F.min("amount").alias("least")
    )
    return groups.where("records > 2").withColumn("spread", F.col("mean") - F.col("least"))


def test_the_values_are_made_of_their_parts_and_no_group_is_left_out(spark: SparkSession) -> None:
    stored = spark.createDataFrame([("a", 4, 10.0, 4, 1), ("b", 1, 7.0, 1, 7), (None, 2, None, 0, None)], PARTS)
    found = of_groups(grouped(spark), stored.repartition(3))
    assert found.columns == ["name", "records", "mean", "least", "spread"]
    assert sorted(map(tuple, found.collect()), key=str) == [
        ("a", 4, 2.5, 1, 1.5),
        ("b", 1, 7.0, 7, 0.0),
        (None, 2, None, None, None),
    ]


def test_parts_of_other_values_are_refused(spark: SparkSession) -> None:
    stored = spark.createDataFrame([("a", 4, 10, 4, 1)], PARTS.replace("DOUBLE", "LONG"))
    with pytest.raises(
        NotRowByRow,
        match="the state has name string, count bigint, sum bigint, .*, and the function keeps .* sum double",
    ):
        of_groups(grouped(spark), stored)

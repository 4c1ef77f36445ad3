"""What a function makes of groups whose parts are stored."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from spark.runtime.internals.plans import NotRowByRow, items, type_of
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


def windowed(given: DataFrame) -> DataFrame:
    """With values of every kind that a pipeline may keep, in windows that overlap."""
    values = {
        "different": F.approx_count_distinct("amount"),
        "sum": F.sum("price"),
        "mean": F.avg("price"),
        "bits": F.bit_xor("amount"),
        "median": F.percentile("amount", 0.5),
        "newest": F.max(F.struct("at", "amount"))["amount"],
    }
    groups = given.groupBy(F.window("at", "10 minutes", "5 minutes"), "name")
    return groups.agg(*[value.alias(name) for name, value in values.items()])


def test_parts_as_sparks_own_first_step_gives_them_make_the_same_values(spark: SparkSession) -> None:
    columns = "at TIMESTAMP, name STRING, amount INT, price DECIMAL(10, 2)"
    rows = [("00:01", "a", 1, "1.5"), ("00:02", "a", 3, "2.5"), ("00:07", "b", 8, None)]
    texts = spark.createDataFrame(
        [(f"2026-01-01 {at}", *of) for at, *of in rows], "at STRING, n STRING, a INT, p STRING"
    )
    given = texts.select(
        F.col("at").cast("timestamp"),
        F.col("n").alias("name"),
        F.col("a").alias("amount"),
        F.col("p").cast("decimal(10, 2)").alias("price"),
    ).repartition(1)
    whole = windowed(given)
    found = of_groups(windowed(spark.createDataFrame(spark.sparkContext.emptyRDD(), columns)), parts_of(whole))
    assert sorted(map(str, found.collect())) == sorted(map(str, whole.collect()))
    assert found.count() == 4


def parts_of(made: DataFrame) -> DataFrame:
    """What the first step of a grouping over one partition gives."""
    spark: Any = made.sparkSession
    last = made._jdf.queryExecution().sparkPlan()
    while not last.nodeName().endswith("Aggregate"):
        (last,) = items(last.children())
    (first,) = items(last.children())
    kinds = [type_of(each) for each in items(first.output())]
    schema = StructType([StructField(f"part_{number}", kind) for number, kind in enumerate(kinds)])
    of_java = spark.sparkContext._jvm.org.apache.spark.sql.types.DataType.fromJson(schema.json())
    return DataFrame(spark._jsparkSession.internalCreateDataFrame(first.execute(), of_java, False), spark)

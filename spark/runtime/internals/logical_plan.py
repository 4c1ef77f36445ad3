"""DataFrames by a logical plan of the JVM's: `frame_of`."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, SparkSession


def frame_of(spark: SparkSession, plan: Any) -> DataFrame:
    """What the plan gives. Spark's Python API has no way to say it."""
    jvm: Any = spark.sparkContext._jvm
    return DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, plan), spark)

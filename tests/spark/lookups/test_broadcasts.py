"""Broadcasts that outlast a query, and what renews them."""

from __future__ import annotations

from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from contracts.definitions.catalog import Catalog
from spark.lookups.broadcasts import Broadcasts
from spark.lookups.dimensions import Dimension
from spark.lookups.join import sides
from spark.runtime.internals.broadcasts import kept
from tests.sample.pipelines.dispatches_enriched import dispatches_enriched
from tests.spark.lookups.test_enrich import dimension


def joined(spark: SparkSession, side: DataFrame) -> list[tuple[str, float | None]]:
    left = spark.range(3).select(F.col("id").cast("string").alias("id"))
    rows = left.join(F.broadcast(side), F.col("id") == F.col("key"), "left").select("id", "value").collect()
    return sorted((row["id"], row["value"]) for row in rows)


def test_a_kept_side_is_computed_once(spark: SparkSession) -> None:
    computed = spark.sparkContext.accumulator(0)

    def counted(number):  # type: ignore[no-untyped-def]  # Spark would take types for those of a pandas function
        computed.add(1)
        return number / 2

    key = F.coalesce(F.col("id").cast("string"), F.lit("")).alias("key")
    halves = spark.range(2).select(key, F.udf(counted, "double")("id").alias("value"))
    side = kept(halves, ["key"])
    for _ in range(3):
        assert joined(spark, side) == [("0", 0.0), ("1", 0.5), ("2", None)]
    assert computed.value == 2
    joined(spark, halves)
    assert computed.value == 4


def test_sides_are_sent_again_when_a_dimension_was_read_anew(spark: SparkSession, catalog: Catalog) -> None:
    broadcasts = Broadcasts(dispatches_enriched.lookups, partial(sides, dispatches_enriched.lookups))
    held = {
        name: Dimension(0, keyed(dimension(spark, catalog, name), name, catalog), catalog.dimension(name).key)
        for name in dispatches_enriched.dimensions
    }
    first = broadcasts.sides(held)
    assert broadcasts.sides(dict(held)) is first
    assert broadcasts.sides({**held, "vans": Dimension(1, held["vans"].frame, ("van_id",))}) is not first


def keyed(frame: DataFrame, name: str, catalog: Catalog) -> DataFrame:
    """A table's key is never null."""
    (key,) = catalog.dimension(name).key
    return frame.withColumn(key, F.coalesce(key, F.lit("")))

"""Which offsets a micro-batch covers."""

from __future__ import annotations

from pyspark.sql import DataFrame

from contracts.servers.ranges import OffsetRange
from spark.runtime.internals.sources import ranges_of


def offset_ranges(batch: DataFrame) -> list[OffsetRange]:
    """The ranges that a `foreachBatch` frame of Spark's Kafka source reads, one for each partition with records.

    Taken from the very objects that the tasks get, so it needs neither a job nor the checkpoint.
    """
    return [OffsetRange(*found) for found in ranges_of(batch)]

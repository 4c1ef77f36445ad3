"""Which offsets a micro-batch covers."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame

from spark.runtime.internals.sources import ranges_of


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The records of one partition from offset `start` up to, not including, `end`."""

    topic: str
    partition: int
    start: int
    end: int


def offset_ranges(batch: DataFrame) -> list[OffsetRange]:
    """The ranges that a `foreachBatch` frame of Spark's Kafka source reads, one for each partition with records.

    Taken from the very objects that the tasks get, so it needs neither a job nor the checkpoint.
    """
    return [OffsetRange(*found) for found in ranges_of(batch)]

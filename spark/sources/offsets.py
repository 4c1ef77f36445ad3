"""Which offsets a micro-batch covers."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame


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
    ranges = []
    for split in batch._jdf.queryExecution().analyzed().rdd().partitions():
        inputs = split.inputPartitions()
        for index in range(inputs.size()):
            found = inputs.apply(index).offsetRange()
            ranges.append(OffsetRange(found.topic(), found.partition(), found.fromOffset(), found.untilOffset()))
    return ranges

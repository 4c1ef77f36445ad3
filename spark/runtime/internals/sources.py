"""What the source of a `foreachBatch` frame gives its tasks: `ranges_of`."""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import DataFrame

from spark.runtime.internals.plans import items


def ranges_of(batch: DataFrame) -> Iterator[tuple[str, int, int, int]]:
    """Topic, partition, first offset and the one after the last, of what each task of a frame of Spark's Kafka source reads."""
    for split in batch._jdf.queryExecution().analyzed().rdd().partitions():
        for each in items(split.inputPartitions()):
            found = each.offsetRange()
            yield found.topic(), found.partition(), found.fromOffset(), found.untilOffset()

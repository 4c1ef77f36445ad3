"""What a streaming query's batch reads, as it runs: `scanned`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery

from spark.runtime.internals.plans import tree

_SCAN = "MicroBatchScan"


def scanned(query: StreamingQuery) -> Iterator[tuple[str, int, int, int]]:
    """Topic, partition, first offset and the one after the last, of Spark's Kafka sources in the batch that runs. Of a topic without news nothing
    is told. A partition that was added begins at 0.
    """
    for scan in scans(executed(query)):
        starts, ends = json.loads(scan.start().json()), json.loads(scan.end().json())
        for topic, partitions in ends.items():
            for partition, end in partitions.items():
                yield topic, int(partition), starts.get(topic, {}).get(partition, 0), end


def scans(steps: Sequence[Any]) -> list[Any]:
    """Those that read a source."""
    return [step for step in steps if step.nodeName().startswith(_SCAN)]


def executed(query: StreamingQuery) -> list[Any]:
    """All steps of the batch that runs."""
    return list(tree(query._jsq.streamingQuery().lastExecution().executedPlan()))

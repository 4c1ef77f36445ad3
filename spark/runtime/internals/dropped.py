"""Whether a streaming query has left out any record of the batch that it runs: `has_dropped`."""

from __future__ import annotations

from typing import Any

from pyspark.sql.streaming.query import StreamingQuery

from spark.runtime.internals.plans import FILTER, items
from spark.runtime.internals.scans import executed, scans

_ROWS, _LATE = "numOutputRows", "numRowsDroppedByWatermark"


def has_dropped(query: StreamingQuery, column: str) -> bool:
    """Whether the filters by this column, one for each source, or an operator with state, have let through less than was read, by the operators'
    own counts.

    Holds once the batch's tasks have ended. True where the plan lacks such a filter.
    """
    nodes = executed(query)
    late = sum(_count(node, _LATE) for node in nodes)
    read = [_count(node, _ROWS) for node in scans(nodes)]
    filters = [node for node in nodes if node.nodeName() == FILTER]
    passed = [
        _count(node, _ROWS) for node in filters if column in {each.name() for each in items(node.references().toSeq())}
    ]
    return late > 0 or len(passed) != len(read) or sum(passed) != sum(read)


def _count(node: Any, metric: str) -> int:
    found = node.metrics().get(metric)
    return int(found.get().value()) if found.isDefined() else 0

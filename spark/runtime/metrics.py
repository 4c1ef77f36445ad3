"""Progress of the queries as Prometheus metrics and as health."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from prometheus_client import Counter, Gauge
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

INPUT_RATE = Gauge("headrace_input_rows_per_second", "Records that arrive.", ["query"])
PROCESSING_RATE = Gauge("headrace_processed_rows_per_second", "Records that the last batch handled.", ["query"])
BATCH_DURATION = Gauge("headrace_batch_duration_seconds", "How long the last batch took.", ["query"])
ROWS = Counter(
    "headrace_rows", "Records taken in; in real-time mode offsets that the positions have passed.", ["query"]
)
LAG = Gauge("headrace_lag_records", "Offsets between what is read and the end.", ["query", "topic", "partition"])
BEHIND = Gauge(
    "headrace_follower_behind_records",
    "Records of the target topics that were not read yet for the positions in real-time mode.",
    ["query"],
)
FOLLOWER_ERRORS = Counter(
    "headrace_follower_errors",
    "Errors while the target topics were read for the positions in real-time mode.",
    ["query", "error"],
)
LATENCY = Gauge(
    "headrace_end_to_end_latency_seconds",
    "From a raw record's timestamp until its batch was written, in the last batch.",
    ["query", "of"],
)
DEAD_LETTERS = Counter("headrace_dead_letters", "Records that became dead letters.", ["query"])
LATE = Counter(
    "headrace_late_records",
    "Records that came too late for an aggregate, a join, a sequence or distinct events.",
    ["query"],
)
STATE_ROWS = Gauge(
    "headrace_state_rows", "Groups, rows of a join, or names of events, that the state holds.", ["query"]
)
STATE_BYTES = Gauge("headrace_state_memory_bytes", "Memory of a pipeline's state.", ["query"])
WATERMARK = Gauge(
    "headrace_watermark_seconds", "Windows that end then or before are over, seconds since 1970.", ["query"]
)
UNMATCHED = Counter("headrace_unmatched_rows", "Lookups that had no row.", ["query", "lookup"])
CHANGEOVERS = Counter(
    "headrace_changeovers",
    "Times that in real-time mode another query took over without a pause (done), or could not (failed).",
    ["query", "outcome"],
)
RESTARTS = Counter("headrace_query_restarts", "Times that a query failed and was started again.", ["query"])
REGISTRY_AWAY = Gauge("headrace_registry_unavailable", "1 while the schema registry does not answer.", ["subject"])
REGISTRY_WAITING = Gauge(
    "headrace_registry_waiting",
    "1 while a batch waits for the registry: it has a schema id not known yet.",
    ["subject"],
)
DIMENSION_UNREADABLE = Gauge(
    "headrace_dimension_unreadable", "1 while a dimension's newest version can't be read.", ["dimension"]
)


class Progress:
    """What queries did since the last look at each, as metrics; once in a while, not with each batch.

    Spark's own listener tells of each, at 80 ms of computing in two processes.
    """

    def __init__(self) -> None:
        self._seen: dict[str, tuple[str, str]] = {}  # by query, its run, and the timestamp of the newest progress
        self._heard_at: dict[str, float] = {}
        self.has_rows = False
        """Whether any query has taken any in."""

    def look(self, query: StreamingQuery, name: str | None = None, *, counts: bool = True) -> None:
        """Set the metrics of a query that runs, under its own name or this one; without `counts` all but what `take_in` and `hear` are told: its records,
        and whether it gets on.
        """
        name, newest = name or query.name or str(query.id), query.lastProgress
        # Another run's may be later, where the clock was set back.
        run, seen = self._seen.get(name, ("", ""))
        seen = seen if run == str(query.runId) else ""
        moved = newest is not None and newest.timestamp > seen
        if counts and (moved or not query.status["isTriggerActive"]):
            self.hear(name)
        self._heard_at.setdefault(name, time.monotonic())
        if newest is None or not moved:
            return
        self._seen[name] = str(query.runId), newest.timestamp
        if counts:
            self.take_in(name, sum(each.numInputRows for each in query.recentProgress if each.timestamp > seen))
        INPUT_RATE.labels(name).set(_number(newest.inputRowsPerSecond))
        PROCESSING_RATE.labels(name).set(_number(newest.processedRowsPerSecond))
        BATCH_DURATION.labels(name).set(newest.batchDuration / 1000)
        if newest.stateOperators:
            STATE_ROWS.labels(name).set(sum(each.numRowsTotal for each in newest.stateOperators))
            STATE_BYTES.labels(name).set(sum(each.memoryUsedBytes for each in newest.stateOperators))
        if (watermark := newest.eventTime.get("watermark")) is not None:
            WATERMARK.labels(name).set(datetime.fromisoformat(watermark).timestamp())
        for topic, partition, lag in _lags(newest):
            LAG.labels(name, topic, partition).set(lag)

    def take_in(self, query: str, rows: int) -> None:
        """Count so many records as taken in."""
        self.has_rows |= rows > 0
        ROWS.labels(query).inc(rows)

    def hear(self, query: str) -> None:
        """Note that a query gets on, or has nothing to do."""
        self._heard_at[query] = time.monotonic()

    def silent_seconds(self) -> float:
        """How long ago a query was last heard of, the one that has been silent longest; 0 before the first has started. One that failed and waits for
        its next start is silent, too.
        """
        return time.monotonic() - min(list(self._heard_at.values()), default=time.monotonic())


def sources_of(progress: StreamingQueryProgress) -> list[dict[str, Any]]:
    """As JSON has them: the offsets of `progress.sources` are Python's text of it."""
    found: list[dict[str, Any]] = json.loads(progress.json)["sources"]
    return found


def _lags(progress: StreamingQueryProgress) -> Iterator[tuple[str, str, int]]:
    for source in sources_of(progress):
        read = source["endOffset"] or {}
        for topic, ends in (source["latestOffset"] or {}).items():
            for partition, end in ends.items():
                lag = end - read.get(topic, {}).get(partition, 0)
                # In real-time mode `end` is of the interval's beginning, and spark.queries.real_time.meter knows better.
                if lag >= 0:
                    yield topic, partition, lag


def _number(rate: float) -> float:
    """Spark gives NaN for a rate over no time at all."""
    return 0.0 if math.isnan(rate) else rate

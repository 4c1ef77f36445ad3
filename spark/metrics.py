"""Progress of the queries as Prometheus metrics and as health."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping

from prometheus_client import Counter, Gauge
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)

INPUT_RATE = Gauge("headrace_input_rows_per_second", "Records that arrive.", ["query"])
PROCESSING_RATE = Gauge("headrace_processed_rows_per_second", "Records that the last batch handled.", ["query"])
BATCH_DURATION = Gauge("headrace_batch_duration_seconds", "How long the last batch took.", ["query"])
ROWS = Counter("headrace_rows", "Records taken in.", ["query"])
LAG = Gauge("headrace_lag_records", "Offsets between what is read and the end.", ["query", "topic", "partition"])
LATENCY = Gauge(
    "headrace_end_to_end_latency_seconds",
    "From a raw record's timestamp until its batch was written, in the last batch.",
    ["query", "of"],
)
DEAD_LETTERS = Counter("headrace_dead_letters", "Records that could not be decoded.", ["query"])
UNMATCHED = Counter("headrace_unmatched_rows", "Lookups that had no row.", ["query", "lookup"])
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


class Progress(StreamingQueryListener):
    """Hears of every batch, and of every look that found nothing."""

    def __init__(self) -> None:
        self._heard_at: dict[str, float] = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        self._heard_at[str(event.id)] = time.monotonic()

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        progress = event.progress
        self._heard_at[str(progress.id)] = time.monotonic()
        query = progress.name or str(progress.id)
        INPUT_RATE.labels(query).set(_number(progress.inputRowsPerSecond))
        PROCESSING_RATE.labels(query).set(_number(progress.processedRowsPerSecond))
        BATCH_DURATION.labels(query).set(progress.batchDuration / 1000)
        ROWS.labels(query).inc(progress.numInputRows)
        for topic, partition, lag in _lags(progress):
            LAG.labels(query, topic, partition).set(lag)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        self._heard_at[str(event.id)] = time.monotonic()

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        self._heard_at.pop(str(event.id), None)  # its owner sees that it ended

    def silent_seconds(self) -> float:
        """How long ago the query was heard of that has been silent longest; 0 before the first has started."""
        return time.monotonic() - min(self._heard_at.values(), default=time.monotonic())


def count_rows(query: str, seen: Mapping[str, int]) -> None:
    """Take in what `spark.live` observed, without the times."""
    DEAD_LETTERS.labels(query).inc(seen["dead_letters"])
    for name, count in seen.items():
        if name.startswith("unmatched."):
            UNMATCHED.labels(query, name.removeprefix("unmatched.")).inc(count)


def count_batch(query: str, seen: Mapping[str, int]) -> None:
    """Take in what `spark.live` observed in a batch that has just been written. Times are milliseconds since 1970."""
    count_rows(query, seen)
    if seen["oldest_ms"] is not None:
        now_ms = time.time() * 1000
        LATENCY.labels(query, "max").set((now_ms - seen["oldest_ms"]) / 1000)
        LATENCY.labels(query, "mean").set((now_ms - seen["mean_ms"]) / 1000)


def _lags(progress: StreamingQueryProgress) -> list[tuple[str, str, int]]:
    lags = []
    for source in progress.sources:
        read, latest = _offsets(source.endOffset), _offsets(source.latestOffset)
        for topic, ends in latest.items():
            for partition, end in ends.items():
                lag = end - read.get(topic, {}).get(partition, 0)
                if (
                    lag >= 0
                ):  # in real-time mode `end` is of the interval's beginning, and spark.real_time_meter knows better
                    lags.append((topic, partition, lag))
    return lags


def _offsets(text: str | None) -> dict[str, dict[str, int]]:
    return json.loads(text) if text and text != "null" else {}


def _number(rate: float) -> float:
    """Spark gives NaN for a rate over no time at all."""
    return 0.0 if math.isnan(rate) else rate

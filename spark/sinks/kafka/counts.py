"""What a query has written, as metrics."""

from __future__ import annotations

import time
from collections.abc import Mapping

from spark.runtime.metrics import DEAD_LETTERS, LATE, LATENCY, UNMATCHED
from spark.sinks.kafka.sink import Written


def count_rows(query: str, written: Written) -> None:
    """Take in what `live` has written, without the times."""
    DEAD_LETTERS.labels(query).inc(written.dead_letters)
    if written.late:
        LATE.labels(query).inc(written.late)
    count_unmatched(query, written.unmatched)


def count_unmatched(query: str, unmatched: Mapping[str, int]) -> None:
    """Take in how many rows found no match, by lookup."""
    for name, count in unmatched.items():
        UNMATCHED.labels(query, name).inc(count)


def count_batch(query: str, written: Written) -> None:
    """Take in what `live` has written just now."""
    count_rows(query, written)
    now_ms = time.time() * 1000
    for which, sent_ms in (("max", written.oldest_ms), ("mean", written.mean_ms)):
        if sent_ms is not None:
            LATENCY.labels(query, which).set((now_ms - sent_ms) / 1000)

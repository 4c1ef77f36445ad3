"""`Backlog`: more than one batch that a query with state finds to read, in partitions that are apart in time."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from datetime import timedelta

import structlog

from contracts.servers.ranges import OffsetRange
from contracts.settings import KafkaSettings
from spark.sources.drift import drift

_MINUTE = timedelta(minutes=1)
_LONGEST, _OF_A_MEMORY = timedelta(days=7), timedelta(days=1)
"""By so much the watermark stays back, at most: for so long joins and windows keep their state, and what waits for a memory is written again with each event of its
key.
"""

_log = structlog.get_logger(__name__)


class Backlog:
    """Until it is read, the watermark stays back, or events of one partition would be late because of another one."""

    def __init__(
        self, query: str, kafka: KafkaSettings, limit: int | None, stopping: threading.Event, *, has_memory: bool
    ) -> None:
        """`limit` is that of a batch, in records of one topic; None: a batch takes what is there, and nothing need wait."""
        self._query, self._limit, self._stopping = query, limit, stopping
        self._kafka = kafka.client_config() | {"group.id": query}
        self._longest = _OF_A_MEMORY if has_memory else _LONGEST
        self._ends: Mapping[tuple[str, int], int] = {}
        self._first = 0

    def look(self, left: Mapping[str, Mapping[int, tuple[int, int]]], coming: int) -> int:
        """At a start: by how many minutes the watermark stays back. `left` is what is to be read, by topic and partition: the offset of the first record, and the one
        after the last; `coming` is the batch with which the query goes on. Raises KafkaException, StopRequested.
        """
        apart = max((self._apart(topic, partitions) for topic, partitions in left.items()), default=timedelta(0))
        minutes = min(apart, self._longest) // _MINUTE
        self._ends, self._first = {}, coming
        if minutes:
            self._ends = {(topic, each): end for topic, of_topic in left.items() for each, (_, end) in of_topic.items()}
            _log.info(
                "the watermark stays back until the backlog is read: its partitions are apart in time",
                query=self._query,
                minutes=minutes,
            )
        if apart > self._longest:
            _log.warning(
                "partitions of the backlog are so far apart in time that events may be late",
                query=self._query,
                hours=apart // timedelta(hours=1),
            )
        return minutes

    def ends_with(self, batch: int, ranges: Sequence[OffsetRange]) -> bool:
        """Whether a batch, but for the first one of a start, reads the last of it."""
        return (
            bool(self._ends)
            and batch != self._first
            and all(each.end >= self._ends.get((each.topic, each.partition), 0) for each in ranges)
        )

    def _apart(self, topic: str, partitions: Mapping[int, tuple[int, int]]) -> timedelta:
        # Spark may take one more of each partition than its share.
        if self._limit is None or sum(end - at for at, end in partitions.values()) <= self._limit + len(partitions):
            return timedelta(0)
        # Between two looks they may be farther apart.
        return drift(self._kafka, topic, partitions, self._stopping) * 5 // 4

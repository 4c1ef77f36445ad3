"""`SourcePartition`: which records of one source partition are taken, told by what was written; and `pass_gaps`, which moves it past offsets
that are no records.
"""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from heapq import merge
from operator import attrgetter

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from contracts.servers.brokers import passes

_POLL_SECONDS = 0.2
_MOST_READ = 1_000
"""Taken records that are read, and not leapt over, on the way to the next gap: a leap costs a fetch."""


class SourcePartition:
    """All below `position` is taken, and some of what follows."""

    def __init__(self, position: int, beyond: Iterable[range] = ()) -> None:
        """`beyond` as `take_all` takes it."""
        self.position = position
        # The first offset of a run, the one after its last, the first of the next run, and so on: an odd number is at or below an offset in a run.
        self._bounds: list[int] = []
        self.take_all(beyond)

    @property
    def end(self) -> int:
        """The offset after the last record that is taken."""
        return self._bounds[-1] if self._bounds else self.position

    @property
    def has_gap(self) -> bool:
        """Whether something is taken beyond the position."""
        return bool(self._bounds)

    def beyond(self) -> tuple[range, ...]:
        """What is taken beyond the position: runs of offsets, the lowest first."""
        return tuple(map(range, self._bounds[::2], self._bounds[1::2]))

    def take(self, offset: int) -> None:
        """Note that a record is taken."""
        if offset == self.position:
            self.move(offset + 1)
        elif offset > self.position:
            self._add(offset)

    def take_all(self, runs: Iterable[range]) -> None:
        """Note that these are taken, the lowest first. One by one, in any order, many would each move all that lie behind it."""
        bounds: list[int] = []
        for run in merge(self.beyond(), runs, key=attrgetter("start")):
            if bounds and run.start <= bounds[-1]:
                bounds[-1] = max(run.stop, bounds[-1])
            elif run.stop > self.position:
                bounds += run.start, run.stop
        if bounds and bounds[0] <= self.position:
            _, self.position, *bounds = bounds
        self._bounds = bounds

    def move(self, position: int) -> None:
        """Note that all below is taken."""
        if position <= self.position:
            return
        at = bisect_right(self._bounds, position)
        if at % 2:
            position = self._bounds[at]
            at += 1
        self.position = position
        del self._bounds[:at]

    def cut(self, end: int) -> None:
        """Forget what is taken from `end` on."""
        at = bisect_left(self._bounds, end)
        self._bounds[at:] = [end] if at % 2 else []
        self.position = min(self.position, end)

    def _add(self, offset: int) -> None:
        at = bisect_right(self._bounds, offset)
        if at % 2:
            return
        # The run before ends here, the one behind begins right after.
        joins_before = at > 0 and self._bounds[at - 1] == offset
        joins_behind = at < len(self._bounds) and self._bounds[at] == offset + 1
        own = ([] if joins_before else [offset]) + ([] if joins_behind else [offset + 1])
        self._bounds[at - joins_before : at + joins_behind] = own


def pass_gaps(consumer: Consumer, topic: str, sources: Mapping[int, SourcePartition], seconds: float) -> set[int]:
    """Move each to its first record that is not taken, or else to the partition's end; `consumer` is a `raw_reader`. Where the topic has nothing at a
    position any more, it stays: whether that is a loss is for others to say.

    Returns the partitions of which nothing was told in so many seconds, or not all. Raises KafkaException.
    """
    deadline = time.monotonic() + seconds
    left = set(sources)
    consumer.assign([TopicPartition(topic, partition, source.position) for partition, source in sources.items()])
    try:
        while left and time.monotonic() < deadline:
            message = consumer.poll(_POLL_SECONDS)
            if message is None:
                continue
            partition, error = message.partition(), message.error()
            if partition not in left or (error is not None and passes(error)):
                continue
            code = None if error is None else error.code()
            if code not in (None, KafkaError._PARTITION_EOF, KafkaError._AUTO_OFFSET_RESET):
                raise KafkaException(error)
            source, offset = sources[partition], message.offset() or 0
            if code != KafkaError._AUTO_OFFSET_RESET:
                source.move(offset)
            if code is not None or source.position == offset:
                left.remove(partition)
                consumer.incremental_unassign([TopicPartition(topic, partition)])
            elif source.position - offset > _MOST_READ:
                consumer.seek(TopicPartition(topic, partition, source.position))
        return left
    finally:
        consumer.unassign()

"""`Progress`: which entries of a timeline lie in Kafka already."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain, takewhile
from operator import lt

from services.replay.tails import Tails
from services.replay.timeline import Timeline


@dataclass(frozen=True, slots=True)
class Progress:
    """For each stream: every entry up to position `upto` is there, and those `beyond` it too.

    An idempotent producer keeps the order within a partition, so each partition holds a beginning of its share of the
    stream, also after a kill in mid-flight. Which share is the partitioner's secret: the partition that is furthest
    behind says what is surely there, and the others are read back to that position.
    """

    upto: Mapping[str, int]
    beyond: Mapping[str, frozenset[int]]

    def first_open(self) -> int:
        """The first position that may be missing."""
        return min(self.upto.values()) + 1

    def has(self, stream: str, position: int) -> bool:
        """Whether an entry is there."""
        return position <= self.upto[stream] or position in self.beyond[stream]


def read_progress(timeline: Timeline, tails: Tails, source: str) -> Progress:
    """What records with this `ce_source` say; other producers' records are passed over. Raises ConsumeError."""
    upto: dict[str, int] = {}
    beyond: dict[str, frozenset[int]] = {}
    for stream in timeline.streams:
        walks = [_positions(timeline, tails, stream, partition, source) for partition in tails.partitions(stream)]
        newest = [next(walk, -1) for walk in walks]
        upto[stream] = min(newest)
        after = partial(lt, upto[stream])
        read_back = (takewhile(after, chain([last], walk)) for last, walk in zip(newest, walks, strict=True))
        beyond[stream] = frozenset(chain.from_iterable(read_back))
    return Progress(upto, beyond)


def _positions(timeline: Timeline, tails: Tails, stream: str, partition: int, source: str) -> Iterator[int]:
    for mark in tails.marks(stream, partition, source):
        position = timeline.position(stream, mark.event_id, mark.occurred_at)
        if position is not None:
            yield position

"""`Progress`: which entries of a timeline lie in Kafka already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, takewhile
from operator import lt

from services.replay.position import START, Position
from services.replay.tails import Tails


@dataclass(frozen=True, slots=True)
class Progress:
    """For each stream: every entry up to position `upto` is there, and those `beyond` it too.

    An idempotent producer keeps the order within a partition, so each partition holds a beginning of its share of the
    stream, also after a kill in mid-flight. Which share is the partitioner's secret: the partition that is furthest
    behind says what is surely there, and the others are read back to that position.
    """

    upto: Mapping[str, Position]
    beyond: Mapping[str, frozenset[Position]]

    def has(self, stream: str, position: Position) -> bool:
        """Whether an entry is there."""
        return position <= self.upto[stream] or position in self.beyond[stream]


def read_progress(streams: Sequence[str], tails: Tails, service: str) -> Progress:
    """What `service` has in each stream; other producers' records are passed over. Raises ConsumeError."""
    upto: dict[str, Position] = {}
    beyond: dict[str, frozenset[Position]] = {}
    for stream in streams:
        walks = [tails.positions(stream, partition, service) for partition in tails.partitions(stream)]
        newest = [next(walk, START) for walk in walks]
        upto[stream] = min(newest)
        after = partial(lt, upto[stream])
        read_back = (takewhile(after, chain([last], walk)) for last, walk in zip(newest, walks, strict=True))
        beyond[stream] = frozenset(chain.from_iterable(read_back))
    return Progress(upto, beyond)

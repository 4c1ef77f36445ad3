"""`Progress`: which entries of a timeline lie in Kafka already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, takewhile
from operator import lt

from services.replay.position import Position
from services.replay.tails import Forgotten, Tails


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
    """What `service` has in each stream, the last of which is for dead letters; other producers' records are passed over.

    Raises ConsumeError; that is Forgotten where it takes deleted events to tell.
    """
    tails.wait_for_replication(streams)
    *events, dead_letters = streams
    found = {stream: _read(stream, tails, service) for stream in events}
    try:
        found[dead_letters] = _read(dead_letters, tails, service)
    except Forgotten:
        # They are purged as a matter of course. Whoever sent an event had sent the dead letters before it.
        found[dead_letters] = max((max({upto, *beyond}) for upto, beyond in found.values())), frozenset()
    return Progress(
        {stream: upto for stream, (upto, _) in found.items()}, {stream: beyond for stream, (_, beyond) in found.items()}
    )


def _read(stream: str, tails: Tails, service: str) -> tuple[Position, frozenset[Position]]:
    """Up to which position every entry is there, and those beyond."""
    walks = [tails.positions(stream, partition, service) for partition in tails.partitions(stream)]
    newest = [next(walk) for walk in walks]
    upto = min(newest)
    read_back = (takewhile(partial(lt, upto), chain([last], walk)) for last, walk in zip(newest, walks, strict=True))
    return upto, frozenset(chain.from_iterable(read_back))

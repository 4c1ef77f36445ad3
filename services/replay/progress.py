"""`Progress`: which entries of a timeline lie in Kafka already."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from itertools import chain, takewhile
from operator import lt

from services.replay.position import START, Position
from services.replay.tails import Forgotten, Tails
from services.replay.timeline import Entry


@dataclass(frozen=True, slots=True)
class Progress:
    """For each stream: every entry up to position `upto` is there, and those `beyond` it too. Of dead letters also those with
    one of the digests `settled`, which were there.

    An idempotent producer keeps the order within a partition, so each partition holds a beginning of its share of the
    stream, also after a kill at any moment. Which share is the partitioner's secret: the partition that is furthest
    behind says what is surely there, and the others are read back to that position.
    """

    upto: Mapping[str, Position]
    beyond: Mapping[str, frozenset[Position]]
    settled: frozenset[str] = frozenset()

    def has(self, entry: Entry) -> bool:
        """Whether an entry is there, or was, and was settled."""
        if entry.position <= self.upto[entry.stream] or entry.position in self.beyond[entry.stream]:
            return True
        return bool(self.settled) and entry.is_unfit and sha256(entry.letter).hexdigest() in self.settled


def read_progress(
    streams: Sequence[str], tails: Tails, service: str, settled: Callable[[], frozenset[str]]
) -> Progress:
    """What `service` has in each stream, the last of which is for dead letters; other producers' records are passed over.

    `settled` gives the digests of dead letters of that stream that were redriven or purged; asked where some are deleted. Raises
    ConsumeError; that is Forgotten where it takes deleted events to tell. And what `settled` raises.
    """
    tails.wait_for_replication(streams)
    *events, dead_letters = streams
    found = {stream: _read(stream, tails, service) for stream in events}
    digests: frozenset[str] = frozenset()
    try:
        found[dead_letters] = _read(dead_letters, tails, service)
    except Forgotten:
        # They are purged as a matter of course, of which the ledger tells. An event tells nothing of the letters before it: the
        # two go to different partitions, and either may have arrived alone.
        found[dead_letters], digests = (START, _left(dead_letters, tails, service)), settled()
    upto = {stream: each for stream, (each, _) in found.items()}
    return Progress(upto, {stream: beyond for stream, (_, beyond) in found.items()}, digests)


def _read(stream: str, tails: Tails, service: str) -> tuple[Position, frozenset[Position]]:
    """Up to which position every entry is there, and those beyond."""
    walks = [tails.positions(stream, partition, service) for partition in tails.partitions(stream)]
    newest = [next(walk) for walk in walks]
    upto = min(newest)
    read_back = (takewhile(partial(lt, upto), chain([last], walk)) for last, walk in zip(newest, walks, strict=True))
    return upto, frozenset(chain.from_iterable(read_back))


def _left(stream: str, tails: Tails, service: str) -> frozenset[Position]:
    """All that is there, where the first ones are deleted."""
    found: set[Position] = set()
    for partition in tails.partitions(stream):
        with suppress(Forgotten):
            found.update(tails.positions(stream, partition, service))
    return frozenset(found)

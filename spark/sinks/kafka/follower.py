"""How far a query in real-time mode has come, by what it writes: `Follower`.

It reads the target topics as they grow. Each record there names its raw record, so it is known at every moment up to where each source
partition is taken without a gap. With that position goes a mark: behind it the target topics tell of all that was written beyond the
position (`spark.sinks.kafka.tail`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from confluent_kafka import Message, TopicPartition

from contracts.servers.brokers import partitions_of, watermarks
from contracts.settings import KafkaSettings
from spark.sinks.kafka.offset_note import Mark
from spark.sinks.kafka.sink import Route
from spark.sinks.kafka.source_partition import SourcePartition, pass_gaps
from spark.sinks.kafka.tail import Taken, raw_reader, reader, source_of

_TIMEOUT_SECONDS = 10.0
_GAP_SECONDS = 0.5
_FETCH = {
    # What is written must not wait for the brokers' answers to this reader, one for each record otherwise.
    "fetch.min.bytes": 1 << 20,
    "fetch.wait.max.ms": 500,
    "queued.max.messages.kbytes": 4_096,
}
_BATCH = 1_000
_MOST_BATCHES = 50
"""In one call of `read`: whoever calls it has other things to do, too."""


@dataclass(frozen=True, slots=True)
class _Moment:
    """Up to where the target topics had been read, and the end of what was seen of each source partition by then."""

    mark: Mark
    ends: Mapping[int, int]


class Follower:
    """Of a pipeline that makes one record, or one dead letter, from each: a record that is left out would be a gap for good."""

    def __init__(self, kafka: KafkaSettings, route: Route, taken: Mapping[int, Taken], ends: Mark) -> None:
        """`taken` is where the query starts, and `ends` are the target topics' then."""
        self._route = route
        self._written = reader(kafka, route, {**_FETCH, "auto.offset.reset": "earliest"})
        self._raw = raw_reader(kafka, route)
        self._sources = {p: SourcePartition(each.position, each.beyond) for p, each in taken.items()}
        # By which that was found.
        self._marks = {p: each.mark for p, each in taken.items()}
        self._next = {(topic, p): end for topic, found in ends.ends.items() for p, end in enumerate(found)}
        self._written.assign([TopicPartition(*place, end) for place, end in self._next.items()])
        self._moments = [self._moment()]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._written.close()
        self._raw.close()

    def read(self) -> None:
        """Take in what has been written since; waits for nothing."""
        for _ in range(_MOST_BATCHES):
            messages = self._written.consume(_BATCH, 0)
            if not messages:
                return
            for message in messages:
                self._take(message)

    def behind(self, ends: Mark) -> int:
        """How many offsets of the target topics it hasn't read yet, up to these ends."""
        places = ((topic, p, end) for topic, found in ends.ends.items() for p, end in enumerate(found))
        return sum(max(end - self._next.get((topic, p), 0), 0) for topic, p, end in places)

    def reached(self, positions: Mapping[int, int]) -> None:
        """Take in how far Spark says that it has come, at an interval's end."""
        for partition, position in positions.items():
            self._sources.setdefault(partition, SourcePartition(0)).move(position)

    def found(self) -> dict[int, Taken]:
        """What can be committed now: each source partition's position and its mark. Raises KafkaException."""
        there = {
            p: self._sources[p]
            for p in partitions_of(self._raw, self._route.source, _TIMEOUT_SECONDS)
            if p in self._sources
        }
        self._settle(there)
        self._moments.append(self._moment())
        fitting = {partition: self._fitting(partition, source) for partition, source in there.items()}
        found = {
            partition: Taken(
                there[partition].position, mark=self._marks.get(partition) if at is None else self._moments[at].mark
            )
            for partition, at in fitting.items()
        }
        del self._moments[: min((at or 0 for at in fitting.values()), default=0)]
        self._follow_added()
        return found

    def _take(self, message: Message) -> None:
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        if message.error() is not None or topic is None or partition is None or offset is None:
            return
        self._next[topic, partition] = offset + 1
        coordinate = source_of(message, self._route)
        if coordinate is not None:
            self._sources.setdefault(coordinate.partition, SourcePartition(0)).take(coordinate.offset)

    def _settle(self, sources: Mapping[int, SourcePartition]) -> None:
        """Of what seems to be missing: an id that was made up is dropped, and offsets that are no records are passed over."""
        for partition, source in sources.items():
            if source.has_gap:
                _, end = watermarks(self._raw, self._route.source, partition, _TIMEOUT_SECONDS)
                source.cut(end)
        gaps = {p: source for p, source in sources.items() if source.has_gap}
        if gaps:
            pass_gaps(self._raw, self._route.source, gaps, _GAP_SECONDS)

    def _moment(self) -> _Moment:
        ends: dict[str, list[int]] = {}
        for topic, partition in sorted(self._next):
            ends.setdefault(topic, []).append(self._next[topic, partition])
        mark = Mark({topic: tuple(found) for topic, found in ends.items()})
        return _Moment(mark, {partition: source.end for partition, source in self._sources.items()})

    def _fitting(self, partition: int, source: SourcePartition) -> int | None:
        """The newest moment when nothing beyond the position had been seen; None: what was found at the start is still beyond it."""
        for at in reversed(range(len(self._moments))):
            if self._moments[at].ends.get(partition, 0) <= source.position:
                return at
        return None

    def _follow_added(self) -> None:
        """Of a target topic that got partitions. A mark without them reads them from their beginning."""
        for topic in (*self._route.targets, self._route.dead_letters):
            for partition in partitions_of(self._written, topic, _TIMEOUT_SECONDS):
                if (topic, partition) not in self._next:
                    self._next[topic, partition] = 0
                    self._written.incremental_assign([TopicPartition(topic, partition, 0)])

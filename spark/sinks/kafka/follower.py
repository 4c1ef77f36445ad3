"""How far a query in real-time mode has come, by what it writes: `Follower`.

It reads the target topics as they grow. Each record there names its raw record, so it is known at every moment up to where each source
partition is taken without a gap. With that position goes a mark: behind it the target topics tell of all that was written beyond the
position (`spark.sinks.kafka.tail`).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import structlog
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from contracts.servers.brokers import ends_of, partitions_of, watermarks_of
from contracts.settings import KafkaSettings
from spark.runtime.metrics import FOLLOWER_ERRORS
from spark.sinks.kafka.offset_note import Mark
from spark.sinks.kafka.sink import Route
from spark.sinks.kafka.source_partition import SourcePartition, pass_gaps
from spark.sinks.kafka.tail import Taken, positions_of, raw_reader, reader, source_of, tell_of_gone, waiting

_TIMEOUT_SECONDS = 5.0
_CLOSE_LOOK_SECONDS = 10.0
_GAP_SECONDS, _MOST_GAP_SECONDS = 0.5, 2.0
"""How long markers are waited for at each look; twice as long while some don't come in time."""
_FETCH = {
    # What is written must not wait for the brokers' answers to this reader, one for each record otherwise.
    "fetch.min.bytes": 1 << 20,
    "fetch.wait.max.ms": 500,
    "queued.max.messages.kbytes": 4_096,
    # So long it asks for nothing once so much waits: with the default of a second it can't follow 6 MB/s.
    "fetch.queue.backoff.ms": 10,
}
_TELL_SECONDS = 600.0
"""From one line in the log about an error to the next about the same."""
_log = structlog.get_logger(__name__)


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
        ours = {"auto.offset.reset": "error", "enable.partition.eof": True, "error_cb": self._tell}
        self._written = reader(kafka, route, {**_FETCH, **ours})
        # It asks for partitions and ends, too: a broker would answer the other one when its fetch ends, half a second later.
        self._raw = raw_reader(kafka, route)
        self._sources = {p: SourcePartition(each.position, each.beyond) for p, each in taken.items()}
        # Of each source partition, where the target topics begin to tell of what was known at the start to be written beyond its position.
        self._marks = {p: each.mark for p, each in taken.items()}
        # As far at least each source partition reaches.
        self._ends = positions_of(taken)
        self._stood_at = dict(self._ends)
        self._gap_seconds = _GAP_SECONDS
        # Source partitions whose end no broker told when it was needed, and why.
        self._untold: dict[int, KafkaException] = {}
        self._next = {(topic, p): end for topic, p, end in ends.places()}
        self._assign()
        # Of the target topics, where the next record is gone.
        self._gone: set[tuple[str, int]] = set()
        self._told: dict[str, float] = {}  # errors, by name, and when
        self._moments = [self._moment()]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._written.close()
        self._raw.close()

    def read(self) -> None:
        """Take in what has been written since, as much as `waiting` gives; waits for nothing."""
        for message in waiting(self._written):
            self._take(message)

    def behind(self, ends: Mark) -> int:
        """How many offsets of the target topics it hasn't read yet, up to these ends."""
        return sum(max(end - self._next.get((topic, p), 0), 0) for topic, p, end in ends.places())

    def move_to(self, positions: Mapping[int, int], before: Mark) -> None:
        """Take in how far Spark says that it has come, at an interval's end; `before` is of a moment when the interval hadn't ended yet.

        What lies before it is of records below these positions, so it need not be read any more.
        """
        for partition, position in positions.items():
            self._sources.setdefault(partition, SourcePartition(0)).move(position)
            self._ends[partition] = max(position, self._ends.get(partition, 0))
        self._leap({place: end for place, at in self._next.items() if at < (end := before.end(*place))})

    def settle(self) -> None:
        """Of what seems to be missing: an id that was made up is dropped, offsets that are no records are passed over, and added partitions
        are read. A source partition that is away holds up no other one. Raises KafkaException.
        """
        for partition in partitions_of(self._raw, self._route.source, _TIMEOUT_SECONDS):
            self._ends.setdefault(partition, 0)
        # Anybody may write an id that looks like a coordinate.
        self._sources = {p: source for p, source in self._sources.items() if p in self._ends}
        further = [p for p, source in self._sources.items() if source.end > self._ends[p]]
        told, self._untold = ends_of(self._raw, self._route.source, further, _TIMEOUT_SECONDS)
        for partition, end in told.items():
            self._ends[partition] = max(end, self._ends[partition])
            self._sources[partition].cut(self._ends[partition])
        # One that stands still may stand before a marker with no record behind it.
        asked = {p: each for p, each in self._sources.items() if each.has_gap or each.position == self._stood_at.get(p)}
        if asked:
            is_late = bool(pass_gaps(self._raw, self._route.source, asked, self._gap_seconds) - self._untold.keys())
            self._gap_seconds = min(2 * self._gap_seconds, _MOST_GAP_SECONDS) if is_late else _GAP_SECONDS
        self._stood_at = {p: each.position for p, each in self._sources.items()}
        self._follow_added()
        self._leave_gone()

    def to_commit(self) -> dict[int, Taken]:
        """What can be committed now: each source partition's position and its mark; not of one that is away, unless all are. Raises KafkaException."""
        self.settle()
        self._moments.append(self._moment())
        sure = {partition: source for partition, source in self._sources.items() if partition not in self._untold}
        if self._untold and not sure:
            raise next(iter(self._untold.values()))
        fitting = {partition: self._fitting(partition, source) for partition, source in sure.items()}
        taken = {
            partition: Taken(
                sure[partition].position,
                mark=self._marks.get(partition) if at is None else self._moments[at].mark,
            )
            for partition, at in fitting.items()
        }
        if not self._untold:
            del self._moments[: min((at or 0 for at in fitting.values()), default=0)]
        return taken

    def written_to_the_end(self, partitions: Iterable[int]) -> dict[int, int]:
        """Of these source partitions those of which all is written that they have now, with their positions; none that is away. Raises KafkaException."""
        ends, _ = ends_of(self._raw, self._route.source, partitions, _TIMEOUT_SECONDS)
        self.settle()
        positions = {p: each.position for p, each in self._sources.items() if p not in self._untold}
        # An answer may be older than what is known.
        return {p: positions[p] for p, end in ends.items() if p in positions and positions[p] >= end}

    def away(self, partitions: Iterable[int]) -> list[int]:
        """These source partitions of which no broker tells the end now."""
        _, untold = ends_of(self._raw, self._route.source, partitions, _TIMEOUT_SECONDS)
        return sorted(untold)

    def before_records(self, positions: Mapping[int, int]) -> set[int]:
        """The source partitions that still stand at these positions, each before a record, or before what the topic does not have any more. One of which nothing is
        read in ten seconds is left out. Raises KafkaException.
        """
        stood = {p: self._sources[p] for p, at in positions.items() if self._sources[p].position == at}
        told = stood.keys() - pass_gaps(self._raw, self._route.source, stood, _CLOSE_LOOK_SECONDS)
        left = [p for p in told if stood[p].position == positions[p]]
        ends, _ = ends_of(self._raw, self._route.source, left, _TIMEOUT_SECONDS)
        return {p for p, end in ends.items() if positions[p] < end}

    def has_written(self, positions: Mapping[int, int]) -> bool:
        """Whether all records below these positions are written, by what was read so far; markers before them count as missing until `settle` is called."""
        return all(p in self._sources and self._sources[p].position >= at for p, at in positions.items())

    def _take(self, message: Message) -> None:
        error, topic, partition, offset = message.error(), message.topic(), message.partition(), message.offset()
        code = None if error is None else error.code()
        if error is not None and code not in (KafkaError._PARTITION_EOF, KafkaError._AUTO_OFFSET_RESET):
            self._tell(error)
        elif topic is None or partition is None:
            return
        elif code == KafkaError._AUTO_OFFSET_RESET:
            self._gone.add((topic, partition))
        elif offset is None:
            return
        elif code == KafkaError._PARTITION_EOF:
            # Behind the markers that follow the last record.
            self._next[topic, partition] = max(offset, self._next[topic, partition])
        else:
            self._next[topic, partition] = offset + 1
            coordinate = source_of(message, self._route)
            if coordinate is not None:
                self._sources.setdefault(coordinate.partition, SourcePartition(0)).take(coordinate.offset)

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
        there = [
            (topic, partition)
            for topic in (*self._route.targets, self._route.dead_letters)
            for partition in partitions_of(self._raw, topic, _TIMEOUT_SECONDS)
        ]
        self._leap({place: 0 for place in there if place not in self._next})

    def _leave_gone(self) -> None:
        first = {}
        # One that is away is asked the next time, and holds up no commit.
        told, _ = watermarks_of(self._raw, self._gone, _TIMEOUT_SECONDS)
        for (topic, partition), (low, high) in told.items():
            at = self._next[topic, partition]
            if not low <= at <= high:
                tell_of_gone(self._route, topic, partition, at, low)
                at = low
            first[topic, partition] = at
        self._leap(first)
        self._gone -= first.keys()

    def _leap(self, places: Mapping[tuple[str, int], int]) -> None:
        if places:
            self._next.update(places)
            self._assign()

    def _assign(self) -> None:
        self._written.assign([TopicPartition(*place, at) for place, at in self._next.items()])

    def _tell(self, error: KafkaError) -> None:
        FOLLOWER_ERRORS.labels(self._route.query, error.name()).inc()
        if time.monotonic() > self._told.get(error.name(), -_TELL_SECONDS) + _TELL_SECONDS:
            self._told[error.name()] = time.monotonic()
            _log.warning("can't follow what is written", query=self._route.query, error=str(error))

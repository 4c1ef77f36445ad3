"""Lag, latency and dead letters of a query in real-time mode, read from the topics: `Meter`.

While an interval lasts, Spark says nothing of it. The newest record of each target partition names its raw record, which
says how far the query is and how long it took.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from itertools import zip_longest
from types import TracebackType
from typing import Self

from confluent_kafka import Message, TopicPartition

from contracts.servers.brokers import ends_of, watermarks
from contracts.settings import KafkaSettings
from spark.runtime.errors import SinkRefused
from spark.runtime.metrics import DEAD_LETTERS, LAG, LATENCY
from spark.sinks.kafka.offset_note import Mark
from spark.sinks.kafka.sink import Route
from spark.sinks.kafka.tail import mark, reader, source_of, waiting
from spark.sinks.kafka.transaction import DEAD_LETTERS_ALLOWED

_WINDOW_SECONDS = 5.0
"""Over how long the share of dead letters counts."""
_TIMEOUT_SECONDS = 5.0
"""Short: whoever waits for a look also has to check the lease, and to hear a stop."""
_SAMPLE_SECONDS = 0.3


class Meter:
    """Looks when it is told to; each look costs the brokers a few records. `ends` are the target topics' at the last one, and `source_ends`
    those of the source partitions that answered. It counts the dead letters, too.
    """

    def __init__(
        self, kafka: KafkaSettings, route: Route, positions: Mapping[int, int], dead_letter_limit: float
    ) -> None:
        """`positions` is where the query starts, by source partition."""
        self._route = route
        self._limit = dead_letter_limit
        self._positions = dict(positions)
        self._sampler = reader(kafka, route, {"fetch.wait.max.ms": 100})
        # What this mode writes is in no transaction, and must not wait for the end of somebody else's.
        self._letters = reader(kafka, route, {"isolation.level": "read_uncommitted"})
        self.ends = mark(self._sampler, route)
        self.source_ends: dict[int, int] = {}
        ends = mark(self._letters, route).ends[route.dead_letters]
        self._letters.assign([TopicPartition(route.dead_letters, p, end) for p, end in enumerate(ends)])
        self._letter_partitions = len(ends)
        self._window_ends_at = 0.0
        self._bad = self._taken_before = 0
        self._bad_up_to: dict[int, int] = {}
        # How many dead letters were too many, and up to where all must be written before that is the verdict.
        self._doubted: tuple[int, dict[int, int]] | None = None
        self._begin_window()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        until = time.monotonic() + _SAMPLE_SECONDS
        while self._count_letters() and time.monotonic() < until:
            pass
        self._sampler.close()
        self._letters.close()

    def look(self) -> None:
        """Set the gauges, and `ends`. Raises KafkaException when all has been asked; what was answered by then counts."""
        self.source_ends, untold = ends_of(self._sampler, self._route.source, self._positions, _TIMEOUT_SECONDS)
        try:
            self._sample()
        finally:
            self._tell_lag()
        self._read_added(len(self.ends.ends[self._route.dead_letters]))
        if untold:
            raise next(iter(untold.values()))

    def move_to(self, positions: Mapping[int, int]) -> None:
        """Take in how far the query has come by what others know. The newest records alone may not tell: those of a source partition may all lie behind another's."""
        # A partition that the topic has got since: this client may not know of it for minutes.
        for partition in positions.keys() & self._positions.keys():
            self._positions[partition] = max(positions[partition], self._positions[partition])

    def log_ends(self) -> Mark:
        """The target topics' ends of now, with what an open transaction of somebody else hides. Raises KafkaException."""
        return mark(self._letters, self._route, _TIMEOUT_SECONDS)

    def check_dead_letters(self, has_written: Callable[[Mapping[int, int]], bool] | None = None) -> None:
        """Raise SinkRefused if of the records of the last seconds more than the share that is let through are dead letters. `has_written` tells whether all records
        below given positions are written. There is no verdict before that: while a target topic takes nothing, good records are missing from the count. Without it
        the verdict comes at once. Raises KafkaException.
        """
        self._count_letters()
        seen = self._seen() if self._bad > DEAD_LETTERS_ALLOWED else self._bad
        if self._bad <= max(DEAD_LETTERS_ALLOWED, self._limit * seen):
            self._doubted = None
            if time.monotonic() > self._window_ends_at:
                self._begin_window()
            return
        if self._doubted is None:
            self._doubted = self._bad, self._known_bad()
        bad, positions = self._doubted
        if has_written is not None and not has_written(positions):
            return
        # If it is not the verdict, it is judged anew by what is counted then.
        self._doubted = None
        seen -= self._bad - bad
        if bad > self._limit * seen:
            raise SinkRefused(
                f"{bad} of the last {seen} records of {self._route.source} are bad, more than the share of {self._limit:g} that is "
                "let through: mend their producer or schema, or raise HEADRACE_LIVE__DEAD_LETTER_LIMIT to send all such records "
                f"to {self._route.dead_letters}"
            )

    def _read_added(self, count: int) -> None:
        """Of the dead letters' partitions, which are so many now, those that were added."""
        if added := range(self._letter_partitions, count):
            self._letters.incremental_assign([TopicPartition(self._route.dead_letters, p, 0) for p in added])
            self._letter_partitions = count

    def _count_letters(self) -> int:
        """How many messages there were; a flood of them must not hold up the lease, nor a stop."""
        count = 0
        for count, message in enumerate(waiting(self._letters), start=1):
            bad = source_of(message, self._route) if message.error() is None else None
            if bad is not None:
                self._bad += 1
                DEAD_LETTERS.labels(self._route.query).inc()
                self._bad_up_to[bad.partition] = max(bad.offset + 1, self._bad_up_to.get(bad.partition, 0))
        return count

    def _begin_window(self) -> None:
        self._window_ends_at = time.monotonic() + _WINDOW_SECONDS
        self._bad, self._taken_before = 0, self._taken()
        self._bad_up_to.clear()

    def _sample(self) -> None:
        """Set the gauges by the newest records, and the target topics' ends."""
        ends = mark(self._sampler, self._route, _TIMEOUT_SECONDS)
        newest = self._sampled(self._moved(ends))
        self.ends = ends
        self._measure(newest)

    def _seen(self) -> int:
        """Records of the window, bad ones included."""
        if not self._route.filters:
            return self._bad + self._taken() - self._taken_before
        # A filter takes good ones away: what counts is how far the query has come, at least up to the last bad one.
        self.move_to(self._known_bad())
        return max(self._bad, self._taken() - self._taken_before)

    def _taken(self) -> int:
        """How many good records there have been; behind a filter the sum of the positions, bad ones included."""
        if self._route.filters:
            return sum(self._positions.values())
        ends = self.log_ends().ends
        return sum(sum(ends[target]) for target in self._route.targets)

    def _known_bad(self) -> dict[int, int]:
        """By source partition, the offset after the last bad record. Anybody may write an id that looks like a coordinate."""
        found = {p: at for p, at in self._bad_up_to.items() if p in self._positions}
        return {p: at for p, at in found.items() if at <= self._end_now(p)}

    def _moved(self, ends: Mark) -> list[TopicPartition]:
        return [
            TopicPartition(topic, partition, end - 1)
            for topic, found in ends.ends.items()
            # A topic may have got partitions since.
            for partition, (end, before) in enumerate(zip_longest(found, self.ends.ends[topic], fillvalue=0))
            if end > before
        ]

    def _sampled(self, places: Iterable[TopicPartition]) -> dict[int, tuple[int, int]]:
        """By source partition, the highest offset among the records at these places, and when it was written (ms)."""
        newest: dict[int, tuple[int, int]] = {}
        for message in self._at(places):
            found = source_of(message, self._route)
            if found is not None and found.partition in self._positions:
                at = found.offset, message.timestamp()[1]
                newest[found.partition] = max(newest.get(found.partition, (-1, 0)), at)
        return newest

    def _measure(self, newest: Mapping[int, tuple[int, int]]) -> None:
        source, query = self._route.source, self._route.query
        delays = []
        for message in self._at([TopicPartition(source, p, offset) for p, (offset, _) in newest.items()]):
            offset, written_ms = newest[message.partition() or 0]
            if message.offset() == offset:
                delays.append((written_ms - message.timestamp()[1]) / 1000)
        if delays:
            LATENCY.labels(query, "max").set(max(delays))
            LATENCY.labels(query, "mean").set(sum(delays) / len(delays))
        for partition in newest.keys() & self.source_ends.keys():
            offset, _ = newest[partition]
            # Anybody may write an id that looks like a coordinate.
            if offset < self.source_ends[partition] or offset < self._end_now(partition):
                self.move_to({partition: offset + 1})

    def _tell_lag(self) -> None:
        for partition, end in self.source_ends.items():
            lag = max(0, end - self._positions[partition])
            LAG.labels(self._route.query, self._route.source, str(partition)).set(lag)

    def _end_now(self, partition: int) -> int:
        """The source partition's end, asked for now. Raises KafkaException."""
        return watermarks(self._sampler, self._route.source, partition, _TIMEOUT_SECONDS)[1]

    def _at(self, places: Iterable[TopicPartition]) -> list[Message]:
        """The records at these places; not those that are gone, or no records."""
        wanted = {(at.topic, at.partition): at for at in places}
        found = []
        if wanted:
            self._sampler.assign(list(wanted.values()))
            until = time.monotonic() + _SAMPLE_SECONDS
            while wanted and time.monotonic() < until:
                message = self._sampler.poll(0.05)
                if message is None or message.error() is not None:
                    continue
                if wanted.pop((str(message.topic()), message.partition() or 0), None) is not None:
                    found.append(message)
            self._sampler.unassign()
        return found

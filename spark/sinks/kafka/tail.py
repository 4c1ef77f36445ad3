"""What the target topics hold already of source records that no committed position tells of: `read_known`.

In real-time mode positions are committed now and then, after the records. What was written since then is found in the
topics themselves: each enriched record and each dead letter names its raw record's coordinate. Where to begin to read
stands in the metadata of the group's offsets: `spark.sinks.kafka.offset_note`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Self

import prometheus_client
import structlog
from confluent_kafka import Consumer, Message, TopicPartition
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from contracts.dead_letters.log import wait_for_open_transactions
from contracts.errors import ConsumeError
from contracts.records.coordinates import PARTS, Coordinate
from contracts.records.dead_letter_headers import ERRORS
from contracts.records.headers import header_of, headers_of
from contracts.servers.brokers import partitions_of, watermarks
from contracts.servers.ranges import OffsetRange, records_in
from contracts.servers.replication import wait_for_replication
from contracts.settings import KafkaSettings
from spark.runtime.errors import PositionsDisagree, StopRequested
from spark.runtime.settings import OnDataLoss
from spark.sinks.kafka.offset_note import Mark, OffsetNote
from spark.sinks.kafka.resume import Evidence
from spark.sinks.kafka.sink import MOST_PARTS, Route
from spark.sinks.kafka.source_partition import SourcePartition, pass_gaps
from spark.sinks.kafka.transaction import committed_positions, note_of
from spark.sources.source_topic import topic_id

_TIMEOUT_SECONDS = 30.0
_NEWEST = 1_000
_BATCH = 1_000
_MOST_BATCHES = 50
_MOST_RUNS = 100
_MOST_BITS = 64
"""So many for each offset that is taken: with more, a list is shorter."""
_MOST_HELD = 250_000
"""Offsets of a partition in any order, until they become runs: some 20 MB."""
_TO_THE_END = {"enable.partition.eof": True}
_TAIL_GONE = prometheus_client.Counter(
    "headrace_tail_records_gone",
    "Records that were to be read, and that a target topic has no more, so that nobody knows what they came from.",
    ["query", "topic"],
)
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Taken:
    """Which records of one source partition are in the target topics: all below `position`, and of the later ones those `beyond`, runs of offsets.

    `mark` is to be committed with every position up to the last of `beyond`, so that they are found again.
    """

    position: int
    beyond: tuple[range, ...] = ()
    mark: Mark | None = None

    def at(self, position: int) -> Self:
        """The same, where one goes on at another position: what was written beyond that one is still there."""
        beyond = tuple(range(max(run.start, position), run.stop) for run in self.beyond if run.stop > position)
        return type(self)(position, beyond, self.mark if beyond else None)

    def mark_at(self, position: int) -> Mark | None:
        """What is to be committed with a position; None if nothing lies beyond it."""
        return self.mark if self.reaches_beyond(position) else None

    def reaches_beyond(self, position: int) -> bool:
        """Whether some of `beyond` lies there or behind it."""
        return bool(self.beyond) and position < self.beyond[-1].stop


def positions_of(taken: Mapping[int, Taken]) -> dict[int, int]:
    """Of each source partition."""
    return {partition: each.position for partition, each in taken.items()}


@dataclass(frozen=True, slots=True)
class Known:
    """Of the source partitions: the group's offsets, as they were `committed`, where it has any; how far they are taken; those
    whose offset the brokers have `forgotten`, for the target topics have records that come from there.

    A partition that was added while real-time mode ran has no offset until an interval ends. It is taken as from its first record on, by
    the oldest mark of the others. `topic_id` is the source topic's. Where an offset is of another one, `other_topics` has the id of that, and nothing that was written counts.
    """

    committed: Mapping[int, TopicPartition]
    taken: Mapping[int, Taken]
    forgotten: Collection[int]
    topic_id: str | None
    other_topics: Mapping[int, str]

    def evidence(
        self,
        consumer: Consumer,
        topic: str,
        partition: int,
        checkpoint: int | None,
        of_checkpoint: str | None = None,
    ) -> Evidence:
        """With what the brokers hold of a partition, and the checkpoint's offset, if there is one; `of_checkpoint` is the id of the topic that it is
        of, if that is another one.
        """
        low, high = watermarks(consumer, topic, partition, _TIMEOUT_SECONDS)
        # Brokers delete a group's offsets with the topic.
        other = self.other_topics.get(partition) or (None if partition in self.taken else of_checkpoint)
        return Evidence(
            self.taken[partition].position if partition in self.taken else None,
            checkpoint,
            low,
            high,
            partition in self.forgotten and other is None,
            None if other is None else (other, self.topic_id),
        )

    def taken_at(self, positions: Mapping[int, int]) -> dict[int, Taken]:
        """What is taken, where one goes on at these positions."""
        return {p: self.taken[p].at(at) if p in self.taken else Taken(at) for p, at in positions.items()}


def reader(kafka: KafkaSettings, route: Route, options: Mapping[str, Any] = MappingProxyType({})) -> Consumer:
    """Reads committed records where it is told to; never subscribes, and commits nothing. `options` are librdkafka's."""
    own = {"group.id": route.query, "isolation.level": "read_committed", "enable.auto.commit": False, "log_level": 0}
    return Consumer({**kafka.client_config(), **own, **options})


def waiting(consumer: Consumer) -> Iterator[Message]:
    """What waits for this reader now, errors included, and at most 50,000 messages: whoever reads has other things to do, too."""
    for _ in range(_MOST_BATCHES):
        messages = consumer.consume(_BATCH, 0)
        if not messages:
            return
        yield from messages


def mark(consumer: Consumer, route: Route, timeout_seconds: float = _TIMEOUT_SECONDS) -> Mark:
    """The ends of now; of each answer it waits so long. Raises KafkaException."""
    topics = (*route.targets, route.dead_letters)
    return Mark({topic: tuple(_ends(consumer, topic, timeout_seconds)) for topic in topics})


def read_known(
    kafka: KafkaSettings,
    route: Route,
    consumer: Consumer,
    partitions: Collection[int],
    on_data_loss: OnDataLoss,
    stopping: threading.Event,
) -> Known:
    """What is known of these partitions. Nobody may write to the target topics meanwhile.

    Raises PositionsDisagree if a target topic was made anew, ConsumeError if its end can't be read, StopRequested.
    """
    tail = _Tail(kafka, route, on_data_loss, stopping)
    there = topic_id(kafka, route.source)
    committed = committed_positions(consumer, route.source, sorted(partitions))
    said = {partition: note_of(at).topic for partition, at in committed.items()}
    if there is None:
        there = next((topic for topic in said.values() if topic is not None), None)
    other = {partition: topic for partition, topic in said.items() if topic is not None and topic != there}
    marks = [note.mark for note in map(note_of, committed.values()) if note.mark is not None]
    oldest = Mark.oldest(marks, [*route.targets, route.dead_letters]) if marks else None
    without = set(partitions) - set(committed)
    forgotten = tail.newest(oldest) & without if without else without
    if forgotten and not committed:
        # Whatever the group had, is gone: an idle partition's records lie too far back to be seen.
        forgotten = without
    if oldest is None:
        taken = {partition: Taken(at.offset) for partition, at in committed.items()}
        return Known(committed, taken, forgotten, there, other)
    ends = {partition: watermarks(consumer, route.source, partition, _TIMEOUT_SECONDS) for partition in partitions}
    note = OffsetNote(mark=oldest).as_metadata()
    added = {p: TopicPartition(route.source, p, ends[p][0], note) for p in without - forgotten}
    taken = tail.read(committed | added, oldest, {partition: high for partition, (_, high) in ends.items()}) | {
        partition: Taken(committed[partition].offset) for partition in other
    }
    return Known(committed, taken, forgotten, there, other)


def not_taken(rows: DataFrame, taken: Mapping[int, Taken]) -> DataFrame:
    """`rows`, which have `partition` and `offset`, without those that were taken ahead of the positions."""
    for partition, each in taken.items():
        if each.beyond:
            rows = rows.where((F.col("partition") != partition) | ~_is_one_of(each.beyond))
    return rows


def _is_one_of(runs: Sequence[range]) -> Column:
    if len(runs) <= _MOST_RUNS:
        return _in_any(runs)
    # Behind a filter most are alone. As literals some hundred thousand would exhaust the heap.
    first, end = runs[0].start, runs[-1].stop
    count = sum(map(len, runs))
    if end - first > _MOST_BITS * count:
        # One list, of which Spark makes a hash set.
        return F.expr(f"`offset` IN ({', '.join(str(offset) for run in runs for offset in run)})")
    bits = F.lit(_bits(runs))
    at = F.col("offset") - first
    byte = F.conv(F.hex(F.substring(bits, F.shiftright(at, 3).cast("int") + 1, F.lit(1))), 16, 10).cast("int")
    is_taken = F.bit_get(byte, (at % 8).cast("int")) == 1
    return F.when(F.col("offset").between(first, end - 1), is_taken).otherwise(F.lit(False))


def _bits(runs: Sequence[range]) -> bytes:
    """A bit for each offset from the first one on, the lowest of a byte first."""
    first = runs[0].start
    bits = bytearray((runs[-1].stop - first + 7) // 8)
    for at in (offset - first for run in runs for offset in run):
        bits[at // 8] |= 1 << at % 8
    return bytes(bits)


def _in_any(runs: Sequence[range]) -> Column:
    """As a tree of little depth: Spark walks through it by recursion."""
    if len(runs) == 1:
        return F.col("offset").between(runs[0].start, runs[0].stop - 1)
    half = len(runs) // 2
    return _in_any(runs[:half]) | _in_any(runs[half:])


def source_of(message: Message, route: Route, *, by_any: bool = False) -> Coordinate | None:
    """Of the source record that a record of the target topics comes from, and of which part of it; None if `route` didn't write it. With
    `by_any` a derived record may be of a pipeline of another name: the same one, before it was renamed.
    """
    headers, is_dead = headers_of(message), message.topic() == route.dead_letters
    writer, own = (f"{ERRORS}connector.name", route.query) if is_dead else ("ce_source", route.ce_source)
    if (is_dead or not by_any) and header_of(headers, writer) != own.encode():
        return None
    return Coordinate.in_event(route.source, header_of(headers, "ce_id"), parts=route.parts and not is_dead)


class _Parts:
    """Tells of each source record when all that came of it was seen: at least once may have written some parts of it only."""

    def __init__(self) -> None:
        self._seen: dict[tuple[int, int, bytes], set[int]] = {}

    def are_all_there(self, source: Coordinate, message: Message) -> bool:
        """Whether a record of the target topics, made of `source`, is the last missing one of its source record's."""
        if source.part is None:
            return True
        # Made with another dimension version, a record may have had another number of parts.
        count = header_of(headers_of(message), PARTS) or b""
        key = (source.partition, source.offset, count)
        seen = self._seen.setdefault(key, set())
        seen.add(source.part)
        if str(len(seen)).encode() != count:
            return False
        del self._seen[key]
        return True


def raw_reader(kafka: KafkaSettings, route: Route) -> Consumer:
    """The one that `pass_gaps` takes."""
    # A look at the next record must not wait for what was asked before.
    return reader(kafka, route, {**_TO_THE_END, "auto.offset.reset": "error", "fetch.wait.max.ms": 10})


def tell_of_gone(route: Route, topic: str, partition: int, first: int, last: int) -> None:
    """Of records that were to be read, from `first` up to `last`, that a target topic has no more."""
    _TAIL_GONE.labels(route.query, topic).inc(max(last - first, 0))
    _log.error(
        "records that would tell what was written are gone: what they came from may be written again",
        topic=topic,
        partition=partition,
        first=first,
        up_to=last,
    )


class _Tail:
    """The target topics' newest records."""

    def __init__(self, kafka: KafkaSettings, route: Route, on_data_loss: OnDataLoss, stopping: threading.Event) -> None:
        self._kafka, self._route, self._on_data_loss, self._stopping = kafka, route, on_data_loss, stopping

    def newest(self, before: Mark | None) -> set[int]:
        """The source partitions that the newest records come from; of those `before` the mark: what lies behind it was written since."""

        def span(topic: str, partition: int, low: int, end: int) -> tuple[int, int]:
            until = end if before is None else min(before.end(topic, partition), end)
            return max(until - _NEWEST * (MOST_PARTS if self._route.parts else 1), low), until

        of_route = (*self._route.targets, self._route.dead_letters)
        # One that was renamed has a group without offsets.
        return {source.partition for source, _ in self._sources(of_route, span, by_any=True)}

    def read(self, committed: Mapping[int, TopicPartition], oldest: Mark, ends: Mapping[int, int]) -> dict[int, Taken]:
        """How far each source partition is taken, by its offset and by the records since its mark. `ends` are the source partitions'."""
        sources = {p: SourcePartition(at.offset) for p, at in committed.items()}
        marks = {p: own for p, at in committed.items() if (own := note_of(at).mark) is not None}
        found: dict[int, set[int]] = {p: set() for p in marks}
        written = (*self._route.targets, self._route.dead_letters)

        def span(topic: str, partition: int, low: int, end: int) -> tuple[int, int]:
            newest = max(own.end(topic, partition) for own in marks.values())
            if newest > end:
                self._tell_of_anew(topic, partition, newest, end)
                marks.update({p: own.anew(topic, partition) for p, own in marks.items()})
                return low, end
            begin = oldest.end(topic, partition)
            if begin < low:
                tell_of_gone(self._route, topic, partition, begin, low)
            return max(begin, low), end

        def counts(source: Coordinate, message: Message) -> bool:
            own, topic, partition = marks.get(source.partition), message.topic() or "", message.partition() or 0
            # Anybody may write an id that looks like a coordinate: one beyond the end would hold the mark for good.
            if own is None or not committed[source.partition].offset <= source.offset < ends[source.partition]:
                return False
            # What lies before its own mark was written before somebody set the offset back. It is read only because another partition's mark is older.
            tells = topic in written or topic in own.ends
            return tells and (message.offset() or 0) >= own.end(topic, partition)

        # What was written to a topic that the pipeline writes no more is written all the same.
        topics = dict.fromkeys([*written, *oldest.ends])
        parts = _Parts()
        for source, message in self._sources(topics, span, by_any=False):
            if counts(source, message) and parts.are_all_there(source, message):
                offsets = found[source.partition]
                offsets.add(source.offset)
                if len(offsets) == _MOST_HELD:
                    sources[source.partition].take_all(_runs(offsets))
                    offsets.clear()
        for partition, offsets in found.items():
            sources[partition].take_all(_runs(offsets))
        self._pass_gaps({p: source for p, source in sources.items() if source.has_gap})
        taken = {
            p: Taken(source.position, source.beyond(), marks.get(p) if source.has_gap else None)
            for p, source in sources.items()
        }
        ahead = {partition: each.position - committed[partition].offset for partition, each in taken.items()}
        if any(ahead.values()):
            beyond_count = sum(len(run) for each in taken.values() for run in each.beyond)
            _log.info("found more than was committed", query=self._route.query, ahead=ahead, beyond=beyond_count)
        return taken

    def _pass_gaps(self, sources: Mapping[int, SourcePartition]) -> None:
        with closing(raw_reader(self._kafka, self._route)) as consumer:
            while sources:
                before = {p: source.position for p, source in sources.items()}
                left = pass_gaps(consumer, self._route.source, sources, _TIMEOUT_SECONDS)
                sources = {p: sources[p] for p in left}
                if stuck := sorted(p for p in left if sources[p].position == before[p]):
                    raise ConsumeError(
                        f"{self._route.source}/{stuck[0]}: nothing to read at {before[stuck[0]]} in {_TIMEOUT_SECONDS:.0f} s: start again"
                    )

    def _tell_of_anew(self, topic: str, partition: int, marked: int, end: int) -> None:
        lost = f"{topic}/{partition} ends at {end}, before the mark of {self._route.query}'s positions, {marked}: it was made anew or cut"
        if self._on_data_loss == "stop":
            raise PositionsDisagree(
                f"{lost}, and what had been written is not to be told from it. Set HEADRACE_LIVE__ON_DATA_LOSS=continue to go on by "
                "what it holds now, and write again what is gone"
            )
        _log.error("records lost", lost=lost, goes_on_at=0)

    def _sources(
        self, topics: Iterable[str], span: Callable[[str, int, int, int], tuple[int, int]], *, by_any: bool
    ) -> Iterator[tuple[Coordinate, Message]]:
        """Of all that those of the topics that exist have in a span, from its first offset up to, not including, its last; `span` is given
        topic, partition, its first offset and the one after its last. `by_any` as `source_of` takes it.
        """
        # What lay at a mark may have been purged: then all that is left is to be read.
        consumer = reader(self._kafka, self._route, {**_TO_THE_END, "auto.offset.reset": "earliest"})
        try:
            spans = []
            there = {topic: found for topic in topics if (found := partitions_of(consumer, topic, _TIMEOUT_SECONDS))}
            wait_for_replication(self._kafka, consumer, there, self._pause)
            for topic, partitions in there.items():
                wait_for_open_transactions(self._kafka, topic, len(partitions), self._pause)
                for partition in partitions:
                    low, end = watermarks(consumer, topic, partition, _TIMEOUT_SECONDS)
                    spans.append(OffsetRange(topic, partition, *span(topic, partition, low, end)))
            for batch in records_in(consumer, spans, silent_seconds=_TIMEOUT_SECONDS, pause=self._pause):
                for message in batch:
                    source = source_of(message, self._route, by_any=by_any)
                    if source is not None:
                        yield source, message
        finally:
            consumer.close()

    def _pause(self, seconds: float) -> None:
        if self._stopping.wait(seconds):
            raise StopRequested("asked to stop while finding out where to go on")


def _runs(offsets: Iterable[int]) -> Iterator[range]:
    """One for each, the lowest first."""
    return (range(offset, offset + 1) for offset in sorted(offsets))


def _ends(consumer: Consumer, topic: str, timeout_seconds: float) -> list[int]:
    partitions = partitions_of(consumer, topic, timeout_seconds)
    return [watermarks(consumer, topic, partition, timeout_seconds)[1] for partition in partitions]

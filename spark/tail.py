"""What the target topics hold already of source records that no committed position tells of: `read_tail`.

In real-time mode positions are committed now and then, after the records. What was written since then is found in the
topics themselves: each enriched record and each dead letter names its raw record's coordinate. Where to begin to read
stands in the metadata of the group's offsets: `Mark`.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Self

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from contracts.brokers import partitions_of, watermarks
from contracts.dead_letters.headers import ERRORS
from contracts.dead_letters.log import wait_for_open_transactions
from contracts.headers import header_of, headers_of
from contracts.replication import wait_for_replication
from contracts.settings import KafkaSettings
from spark.sink import Route

_TIMEOUT_SECONDS = 30.0
_POLL_SECONDS = 0.2
_NEWEST = 1_000
_TO_THE_END = {"enable.partition.eof": True}
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Mark:
    """Ends of the target topics' partitions, by topic, at a moment before anything behind a position was written."""

    ends: Mapping[str, tuple[int, ...]]

    def as_metadata(self, epoch: int) -> str:
        """As the metadata of an offset that the holder of the lease's `epoch` commits; brokers take 4,096 bytes, which are some 150 partitions."""
        ends = {topic: list(ends) for topic, ends in self.ends.items()}
        return json.dumps({"epoch": epoch, "ends": ends}, separators=(",", ":"))

    @classmethod
    def of(cls, metadata: str | None) -> Self | None:
        """None if it isn't ours: who committed it wrote records and position together."""
        try:
            found = json.loads(metadata or "null")["ends"]
            return cls({str(topic): tuple(map(int, ends)) for topic, ends in found.items()})
        except (ValueError, TypeError, KeyError, AttributeError):
            return None


@dataclass(frozen=True, slots=True)
class Taken:
    """Of one source partition: all records below `position` are in the target topics, and of the later ones these.

    `mark` is to be committed with every position up to the last of `beyond`, so that they are found again.
    """

    position: int
    beyond: frozenset[int] = frozenset()
    mark: Mark | None = None

    def metadata(self, epoch: int) -> str:
        """To be committed so by the holder of the lease's `epoch`."""
        return "" if self.mark is None else self.mark.as_metadata(epoch)


def reader(kafka: KafkaSettings, route: Route, options: Mapping[str, Any] = MappingProxyType({})) -> Consumer:
    """Reads committed records where it is told to; never subscribes, and commits nothing. `options` are librdkafka's."""
    own = {"group.id": route.query, "isolation.level": "read_committed", "enable.auto.commit": False, "log_level": 0}
    return Consumer({**kafka.client_config(), **own, **options})


def mark(consumer: Consumer, route: Route) -> Mark:
    """The ends of now."""
    return Mark({topic: tuple(_ends(consumer, topic)) for topic in (route.target, route.dead_letters)})


def read_tail(kafka: KafkaSettings, route: Route, committed: Mapping[int, TopicPartition]) -> dict[int, Taken]:
    """How far each source partition is taken, by the group's offsets and by the records since their marks.

    `committed` has the partitions for which the group has an offset. Nobody may write to the target topics meanwhile.
    """
    marks = {partition: Mark.of(at.metadata) for partition, at in committed.items()}
    found: dict[int, set[int]] = {partition: set() for partition, each in marks.items() if each is not None}
    if not found:
        return {partition: Taken(at.offset) for partition, at in committed.items()}
    known = [each.ends for each in marks.values() if each is not None]

    def begin(topic: str, partition: int, end: int) -> int:
        ends = [each.get(topic, ()) for each in known]
        return min(each[partition] if partition < len(each) else 0 for each in ends)

    for partition, offset in _coordinates(kafka, route, begin):
        if partition in found and offset >= committed[partition].offset:
            found[partition].add(offset)
    taken = {partition: _taken(kafka, route, at, found.get(partition, set())) for partition, at in committed.items()}
    ahead = {partition: each.position - committed[partition].offset for partition, each in taken.items()}
    if any(ahead.values()):
        beyond_count = sum(len(each.beyond) for each in taken.values())
        _log.info("found more than was committed", query=route.query, ahead=ahead, beyond=beyond_count)
    return taken


def written_without_offset(
    kafka: KafkaSettings, route: Route, partitions: Collection[int], committed: Collection[int]
) -> set[int]:
    """Source partitions for which the group has no offset though the newest records of the target topics come from them: it
    had one, and the brokers have forgotten it.
    """
    left = set(partitions) - set(committed)
    if not left:
        return left
    return left & {partition for partition, _ in _coordinates(kafka, route, lambda _t, _p, end: end - _NEWEST)}


def not_taken(rows: DataFrame, taken: Mapping[int, Taken]) -> DataFrame:
    """`rows`, which have `partition` and `offset`, without those that were taken ahead of the positions."""
    for partition, each in taken.items():
        if each.beyond:
            rows = rows.where((F.col("partition") != partition) | ~F.col("offset").isin(sorted(each.beyond)))
    return rows


def source_offset(message: Message, route: Route) -> tuple[int, int] | None:
    """Partition and offset of the source record that a record of the target topics comes from; None if `route` didn't write it."""
    headers = headers_of(message)
    if message.topic() == route.dead_letters and header_of(headers, f"{ERRORS}connector.name") != route.query.encode():
        return None
    topic, _, rest = (header_of(headers, "ce_id") or b"").decode(errors="replace").partition("/")
    partition, _, offset = rest.partition("/")
    return (int(partition), int(offset)) if topic == route.source and partition.isdigit() and offset.isdigit() else None


def _taken(kafka: KafkaSettings, route: Route, at: TopicPartition, there: set[int]) -> Taken:
    position = _first_missing(there, at.offset)
    while there and position < max(there):
        # Markers of transactions are offsets, but no records.
        record = _next_record(kafka, route, TopicPartition(route.source, at.partition, position))
        if record == position:
            break
        position = _first_missing(there, record)
    beyond = frozenset(offset for offset in there if offset > position)
    return Taken(position, beyond, Mark.of(at.metadata) if beyond else None)


def _first_missing(there: set[int], start: int) -> int:
    return next(offset for offset in itertools.count(start) if offset not in there)


def _next_record(kafka: KafkaSettings, route: Route, at: TopicPartition) -> int:
    """The offset of the first record from `at` on, or the partition's end. `at` itself, too, if the topic has nothing there any
    more: whether that is a loss is for others to say.
    """
    consumer = reader(kafka, route, {**_TO_THE_END, "auto.offset.reset": "error"})
    deadline = time.monotonic() + _TIMEOUT_SECONDS
    try:
        consumer.assign([at])
        while time.monotonic() < deadline:
            message = consumer.poll(_POLL_SECONDS)
            if message is None:
                continue
            error, offset = message.error(), message.offset()
            if error is not None and error.code() == KafkaError._AUTO_OFFSET_RESET:
                return at.offset
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                if not error.retriable():
                    raise KafkaException(error)
            elif offset is not None:
                return offset
        raise TimeoutError(f"{at.topic}/{at.partition}: nothing to read at {at.offset} in {_TIMEOUT_SECONDS:.0f} s")
    finally:
        consumer.close()


def _coordinates(
    kafka: KafkaSettings, route: Route, begin: Callable[[str, int, int], int]
) -> Iterator[tuple[int, int]]:
    """Of all that the target topics have from `begin` on, which is given topic, partition and its end."""
    # What lay at a mark may have been purged: then all that is left is to be read.
    consumer = reader(kafka, route, {**_TO_THE_END, "auto.offset.reset": "earliest"})
    try:
        left: dict[tuple[str, int], int] = {}
        starts = []
        topics = (route.target, route.dead_letters)
        wait_for_replication(kafka, consumer, topics)
        for topic in topics:
            wait_for_open_transactions(kafka, topic, len(partitions_of(consumer, topic, _TIMEOUT_SECONDS)))
            for partition, end in enumerate(_ends(consumer, topic)):
                start = max(begin(topic, partition, end), 0)
                if start < end:
                    left[topic, partition] = end
                    starts.append(TopicPartition(topic, partition, start))
        consumer.assign(starts)
        while left:
            messages = consumer.consume(1000, 0.05)
            for message in messages:
                where = (str(message.topic()), message.partition() or 0)
                error = message.error()
                if error is not None and not error.retriable() and error.code() != KafkaError._PARTITION_EOF:
                    raise KafkaException(error)
                if error is None and (coordinate := source_offset(message, route)) is not None:
                    yield coordinate
                if where in left and (message.offset() or 0) + (error is None) >= left[where]:
                    del left[where]
    finally:
        consumer.close()


def _ends(consumer: Consumer, topic: str) -> list[int]:
    partitions = partitions_of(consumer, topic, _TIMEOUT_SECONDS)
    return [watermarks(consumer, topic, partition, _TIMEOUT_SECONDS)[1] for partition in partitions]

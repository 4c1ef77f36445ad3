"""One task's share of the exactly-once sink: rows and position of one source partition in Kafka transactions.

Runs in Spark's Python workers. The order is what makes it exactly-once: `init_transactions` fences whoever else holds the
partition and ends what it left open; only then is the group's offset read, and rows below it are skipped.
"""

from __future__ import annotations

import functools
import json
import time
from base64 import b64decode
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import astuple, dataclass
from typing import Any, Protocol, TypeAlias

import pyarrow as pa
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from pyspark import SparkContext, TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from contracts.records.coordinates import PARTS
from contracts.records.dead_letter_headers import Header, dead_letter_headers, stump_headers
from contracts.records.missed_windows import missed_windows_headers
from contracts.servers.brokers import retried, watermarks
from contracts.servers.producer_config import PRODUCER_CONFIG, close_producer
from contracts.servers.ranges import OffsetRange
from spark.runtime.errors import TakenOver
from spark.runtime.workers.arrow import text
from spark.runtime.workers.worker_input import map_whole
from spark.sinks.kafka.offset_note import OffsetNote
from spark.sinks.kafka.sink import BRANCH, LATE, PASSED_ON, Route

RESULT = "result string"
"""What a task says of itself, a JSON object: partition, sent, dead_letters, late, skipped; of what it wrote oldest_ms and sum_ms of
the timestamps and unmatched, counts by lookup; and refused, a sentence when it wrote nothing because writing would be wrong,
else null."""

_COLUMNS = ("offset", "timestamp_ms", "key", "value", "bad", *PASSED_ON)
_PART_COLUMNS = ("part", "parts")
_RANGES = "headrace.ranges"
_TIMEOUT_SECONDS = 30.0
_TRANSACTION_SECONDS = 60.0
HELD_BYTES = 8 << 20
"""Some 30,000 rows: sent within a second."""
DEAD_LETTERS_ALLOWED = 100
"""So many are let through, whatever their share."""

_PRODUCER: dict[str, Any] = {
    **PRODUCER_CONFIG,
    "batch.size": 256 << 10,
    "queue.buffering.max.kbytes": 65_536,
    # Connects at once, not when the first request has waited for 50 ms; the coordinator may be any broker.
    "enable.sparse.connections": False,
}

Headers: TypeAlias = list[tuple[str, str | bytes | None]]

_consumers: dict[str, Consumer] = {}
"""By group; each only ever reads positions."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What every task needs to know, the same in every batch; `kafka` are librdkafka properties, secrets in clear.

    An open transaction holds back every reader of committed records, so a long range is cut: after so many records, or so many seconds.
    """

    kafka: Mapping[str, str]
    route: Route
    epoch: int
    dead_letter_limit: float
    transaction_records: int = 100_000
    transaction_seconds: float = 5.0


@contextmanager
def given(context: SparkContext, ranges: Sequence[OffsetRange], metadata: Mapping[int, str]) -> Iterator[None]:
    """Tell the tasks of the jobs begun meanwhile their ranges, in order, and what goes with the offsets of these partitions."""
    told = [(*astuple(found), metadata.get(found.partition, "")) for found in ranges]
    with local_property(context, _RANGES, json.dumps(told)):
        yield


@contextmanager
def local_property(context: SparkContext, name: str, value: str) -> Iterator[None]:
    """Tell the tasks of the jobs begun meanwhile."""
    context.setLocalProperty(name, value)
    try:
        yield
    finally:
        context.setLocalProperty(name, "")


class Refused(Exception):
    """Writing would lose or double records; the text says why and what to do."""


def sending(rows: DataFrame, plan: Plan) -> DataFrame:
    """Rows of `spark.sinks.kafka.sink.outgoing` in; the query whose tasks send them, and give a row of `RESULT` each, out.

    Spark measures every column again for each row that it hands to Python, arrays of structs at the most cost. So what only a bad
    row has, reason, error, headers, stump and missed windows, goes as one JSON text.
    """
    told = [name for name in ("reason", "error", "headers", "stump", "missed") if name in rows.columns]
    bad = F.when(F.col("reason").isNotNull(), F.to_json(F.struct(*told)))
    parts = _PART_COLUMNS if plan.route.parts else ()
    branch = (BRANCH,) if plan.route.branches else ()
    columns = rows.withColumn("bad", bad).select("partition", *_COLUMNS, "unmatched", *parts, *branch)
    return map_whole(columns, functools.partial(send, plan), RESULT)


def send(plan: Plan, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What `sending` makes of rows in, one row of `RESULT` out; `batches` raise at their end if rows are missing."""
    context = TaskContext.get()
    assert context is not None
    *found, metadata = json.loads(str(context.getLocalProperty(_RANGES)))[context.partitionId()]
    yield answer(_Task(plan, OffsetRange(*found), metadata), batches)


class Task(Protocol):
    """One task's share of a sink."""

    def run(self, batches: Iterator[pa.RecordBatch]) -> None:
        """Raises Refused before anything wrong is committed."""

    def result(self) -> dict[str, Any]:
        """`RESULT`, but for refused."""


def answer(task: Task, batches: Iterator[pa.RecordBatch]) -> pa.RecordBatch:
    """Run it; its row of `RESULT`."""
    refused = None
    try:
        task.run(batches)
    except Refused as error:
        refused = str(error)
        # What Spark still has for us must be taken, or it says only that the pipe broke.
        for _ in batches:
            pass
    done = text(json.dumps(task.result() | {"refused": refused}))
    return pa.RecordBatch.from_arrays([done], names=[RESULT.split()[0]])


def transactional_producer(
    kafka: Mapping[str, str], route: Route, partition: int, seconds: float = _TRANSACTION_SECONDS
) -> Producer:
    """The one producer that may write for a source partition from now on: earlier ones are fenced. A transaction may last so many `seconds`."""
    own = {
        "transactional.id": f"{route.query}/{route.source}/{partition}",
        "transaction.timeout.ms": round(seconds * 1000),
    }
    producer = Producer({**_PRODUCER, **kafka, **own})
    # With connections to all brokers up, init_transactions takes milliseconds; without, a timer of half a second.
    producer.list_topics(timeout=_TIMEOUT_SECONDS)
    producer.init_transactions(_TIMEOUT_SECONDS)
    return producer


@contextmanager
def unless_fenced(route: Route) -> Iterator[None]:
    """Raises TakenOver if another process has fenced this one's producers since it began."""
    try:
        yield
    except KafkaException as error:
        if not error.args[0].fatal():
            raise
        raise TakenOver(
            f"another process has begun to run {route.query} while this one did, or this one was frozen for longer than a transaction lasts: it stops"
        ) from error


def fence(kafka: Mapping[str, str], route: Route, partitions: Sequence[int]) -> None:
    """From here on nobody who was there before moves the group's offsets in a transaction."""
    with fenced(kafka, route, partitions):
        pass


def take_nothing(plan: Plan, found: OffsetRange, metadata: str) -> None:
    """Commit the end of a range of which nothing is to be written. Raises Refused as a task does."""
    _Task(plan, found, metadata).run(iter(()))


@contextmanager
def fenced(
    kafka: Mapping[str, str], route: Route, partitions: Iterable[int], seconds: float = _TRANSACTION_SECONDS
) -> Iterator[dict[int, Producer]]:
    """The producers that may write for these source partitions, as long as nobody else comes; those of before may not any more. A transaction may
    last so many `seconds`.
    """
    with ExitStack() as stack:
        producers = {}
        for partition in partitions:
            producers[partition] = transactional_producer(kafka, route, partition, seconds)
            stack.callback(close_producer, producers[partition])
        yield producers


def commit_position(producer: Producer, consumer: Consumer, position: TopicPartition) -> None:
    """Set the group's offset of a source partition by its producer. Raises KafkaException if that one is fenced."""
    producer.begin_transaction()
    try:
        producer.send_offsets_to_transaction([position], consumer.consumer_group_metadata(), _TIMEOUT_SECONDS)
        producer.commit_transaction(_TIMEOUT_SECONDS)
    except KafkaException:
        abort(producer)
        raise


def abort(producer: Producer) -> None:
    """End the open transaction; what it has sent is never seen."""
    try:
        producer.abort_transaction(_TIMEOUT_SECONDS)
    except KafkaException:
        # Fenced, or no broker: the next one's init_transactions, or the timeout, ends it.
        producer.purge()


def constant_headers(route: Route, target: str) -> list[tuple[str, bytes]]:
    """Those of a topic's derived records, as they are sent."""
    return [(name, text.encode()) for name, text in route.constant_headers(target).items()]


def position_reader(kafka: Mapping[str, str], route: Route) -> Consumer:
    """Reads the group's positions, none that an open transaction may still change; never subscribes."""
    # Kept for long, it would tell of each attempt to connect while the brokers are away; what asks it, tells of the outage.
    quiet = {"group.id": route.query, "isolation.level": "read_committed", "log_level": 0}
    return Consumer({**kafka, **quiet})


def kept_reader(kafka: Mapping[str, str], route: Route) -> Consumer:
    """A `position_reader` that this worker keeps for its life, one for each group."""
    consumer = _consumers.get(route.query)
    if consumer is None:
        consumer = _consumers[route.query] = position_reader(kafka, route)
    return consumer


def produce(producer: Producer, topic: str, value: bytes, key: bytes | None, headers: Headers) -> None:
    """Hand a record to a producer, as soon as its queue has room."""
    while True:
        try:
            return producer.produce(topic, value, key, headers=headers)
        except BufferError:
            producer.poll(0.05)


def committed_offsets(consumer: Consumer, topic: str, partitions: Sequence[int]) -> dict[int, int | None]:
    """The group's offsets, None where it has none; waits while the group's coordinator moves or a transaction ends."""
    found = committed_positions(consumer, topic, partitions)
    return {partition: found[partition].offset if partition in found else None for partition in partitions}


def committed_positions(
    consumer: Consumer, topic: str, partitions: Sequence[int], seconds: float = _TRANSACTION_SECONDS
) -> dict[int, TopicPartition]:
    """The group's offsets with their metadata, of the partitions that it has one for; waits as `committed_offsets` does, for so long at most."""
    asked = [TopicPartition(topic, partition) for partition in partitions]
    found = retried(lambda: consumer.committed(asked, timeout=min(seconds, _TIMEOUT_SECONDS)), seconds)
    return {at.partition: at for at in found if at.offset >= 0}


def note_of(at: TopicPartition) -> OffsetNote:
    """What stands beside a committed offset."""
    return OffsetNote.of(at.metadata)


class _Task:
    """Sends one range. The counts are of what is committed."""

    def __init__(self, plan: Plan, found: OffsetRange, metadata: str) -> None:
        self.range = found
        self._metadata = metadata
        self.sent = self.dead_letters = self.late = self.skipped = 0
        self._plan = plan
        self._route = plan.route
        # What a filter leaves out does not come here, however long it takes: meanwhile no transaction may be open.
        self._holds_back = plan.route.filters or OffsetNote.of(metadata).mark is not None
        self._held: list[pa.RecordBatch] = []
        # Since the last commit, which is at the offset `_start`: held back, or in the open transaction.
        self._rows = self._bytes = self._start = 0
        self._began = 0.0  # when the first of them came
        self._is_open = False
        self._good = self._bad = self._late = 0  # in the open transaction
        branches = plan.route.branches or ((None, plan.route.target),)
        self._targets = {name: (topic, constant_headers(plan.route, topic)) for name, topic in branches}
        self._oldest_ms: int | None = None
        self._sum_ms = 0
        self._unmatched: Counter[str | None] = Counter()

    def result(self) -> dict[str, Any]:
        """`RESULT`, but for refused."""
        unmatched: Counter[str] = Counter()
        for names, count in self._unmatched.items():
            for name in names.split(",") if names else ():
                unmatched[name] += count
        return {
            "partition": self.range.partition,
            "sent": self.sent,
            "dead_letters": self.dead_letters,
            "late": self.late,
            "skipped": self.skipped,
            "oldest_ms": self._oldest_ms,
            "sum_ms": self._sum_ms,
            "unmatched": unmatched,
        }

    def run(self, batches: Iterator[pa.RecordBatch]) -> None:
        """Raises Refused before anything wrong is committed."""
        self._producer = transactional_producer(self._plan.kafka, self._route, self.range.partition)
        try:
            consumer = kept_reader(self._plan.kafka, self._route)
            self._group = consumer.consumer_group_metadata()
            taken = self._taken(consumer)
            if taken < self.range.end:
                self._take_in(batches, taken)
            else:
                self.skipped = sum(batch.num_rows for batch in batches)
        finally:
            close_producer(self._producer)

    def _take_in(self, batches: Iterator[pa.RecordBatch], taken: int) -> None:
        self._start, last = taken, taken - 1
        try:
            for batch in map(functools.partial(self._not_taken, taken), batches):
                if not batch.num_rows:
                    continue
                if self._route.parts and self._is_due():
                    # Not between two parts of a record: the rest of the last one goes with the others.
                    rest = bisect_right(batch.column("offset").to_pylist(), last)
                    if rest < batch.num_rows:
                        self._take(batch.slice(0, rest))
                        self._commit(last + 1)
                        batch = batch.slice(rest)
                self._take(batch)
                last = batch.column("offset")[-1].as_py()
                if not self._route.parts and self._is_due():
                    self._commit(last + 1)
            # All rows came, or `batches` had raised. The range's end, not the last row's: markers of transactions are offsets too.
            self._commit(self.range.end)
        except BaseException:
            if self._is_open:
                abort(self._producer)
            raise

    def _not_taken(self, taken: int, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Its rows from offset `taken` on."""
        if not batch.num_rows:
            return batch
        if batch.column("partition")[0].as_py() != self.range.partition:
            raise RuntimeError(f"rows of another partition in the task of {self.range}")
        if batch.column("offset")[0].as_py() >= taken:
            return batch
        skipped = bisect_left(batch.column("offset").to_pylist(), taken)
        self.skipped += skipped
        return batch.slice(skipped)

    def _take(self, batch: pa.RecordBatch) -> None:
        """Send it, or hold it back until the next commit."""
        if not self._rows:
            self._began = time.monotonic()
        self._rows += batch.num_rows
        if self._holds_back:
            self._held.append(batch)
            self._bytes += batch.nbytes
        else:
            self._send(batch)

    def _send(self, batch: pa.RecordBatch) -> None:
        """All rows of a batch. Every microsecond here is a second per million records."""
        self._open()
        # So no `Coordinate` is made: a prefix and the rest of its text are enough.
        targets, coordinate = self._targets, f"{self.range.topic}/{self.range.partition}/"
        produce = self._producer.produce
        names = (*_COLUMNS, *_PART_COLUMNS) if self._route.parts else _COLUMNS
        columns = [batch.column(name).to_pylist() for name in names]
        self._count(columns[1], batch.column("unmatched").to_pylist())
        if self._route.parts:
            *columns, numbers, parts = columns
            ids: Iterable[str] = [f"{offset}/{number}" for offset, number in zip(columns[0], numbers, strict=True)]
        else:
            ids, parts = map(str, columns[0]), [None] * len(columns[0])
        branches = batch.column(BRANCH).to_pylist() if self._route.branches else [None] * len(columns[0])
        first, second, third = PASSED_ON  # a loop over them would take half a microsecond
        for offset, timestamp_ms, key, value, bad, of_first, of_second, of_third, own_id, of_parts, branch in zip(
            *columns, ids, parts, branches, strict=True
        ):
            sent: list[Header]
            if bad is None:
                (topic, constant), timestamp_ms = targets[branch], 0
                sent = [("ce_id", coordinate + own_id), *constant]
                if of_first is not None:
                    sent.append((first, of_first))
                if of_second is not None:
                    sent.append((second, of_second))
                if of_third is not None:
                    sent.append((third, of_third))
                if of_parts is not None:
                    sent.append((PARTS, of_parts))
                self._good += 1
            else:
                told = json.loads(bad)
                sent = self._dead_letter_headers(told, coordinate + str(offset))
                if told["reason"] == LATE:
                    topic = self._route.late
                    self._late += 1
                else:
                    topic = self._route.dead_letters
                    self._bad += 1
            while True:
                try:
                    produce(topic, value, key, headers=sent, timestamp=timestamp_ms)
                    break
                except BufferError:
                    self._producer.poll(0.05)

    def _dead_letter_headers(self, told: Mapping[str, Any], coordinate: str) -> list[Header]:
        # JSON has bytes in base64, and no value at all where it is null.
        original = [
            (header["key"], b64decode(header["value"]) if "value" in header else None)
            for header in told.get("headers", [])
        ]
        query, reason, error = self._route.query, told["reason"], told["error"]
        added = dead_letter_headers(original, self.range.topic, query, "VALUE_CONVERTER", reason, error, coordinate)
        if (stump := told.get("stump")) is not None:
            added += stump_headers(stump["bytes"], stump.get("sha256"))
        if (missed := told.get("missed")) is not None:
            added += missed_windows_headers(missed["first"], missed["last"], missed["watermark"])
        return added

    def _count(self, timestamps_ms: list[int], unmatched: list[str | None]) -> None:
        if timestamps_ms:
            oldest = min(timestamps_ms)
            self._oldest_ms = oldest if self._oldest_ms is None else min(self._oldest_ms, oldest)
            self._sum_ms += sum(timestamps_ms)
            self._unmatched.update(unmatched)

    def _taken(self, consumer: Consumer) -> int:
        """The offset up to which the group has taken this partition in."""
        topic, partition, start = self.range.topic, self.range.partition, self.range.start
        at = committed_positions(consumer, topic, [partition]).get(partition)
        if at is not None and (successor := note_of(at).epoch) > self._plan.epoch:
            # One who writes in real-time mode fences nobody, so its positions must say that it is there.
            raise Refused(
                f"another process has taken {topic}/{partition} over (epoch {successor} of the lease, "
                f"this one has {self._plan.epoch}): this one stops"
            )
        taken = None if at is None else at.offset
        if taken is None:
            # Right for a partition that is new, and read from its first record on.
            earliest, _ = watermarks(consumer, topic, partition, _TIMEOUT_SECONDS)
            if start > earliest:
                raise Refused(
                    f"the group {self._route.query} has no offset for {topic}/{partition}, and the batch begins at {start}, "
                    f"beyond the first record, {earliest}: restart with HEADRACE_LIVE__RESUME_FROM=checkpoint to go on "
                    "there, or set the group's offsets with kafka-consumer-groups"
                )
            return start
        if taken < start:
            raise Refused(
                f"a gap: the group {self._route.query} has taken {topic}/{partition} up to offset {taken}, and the batch "
                f"begins at {start}: restart with HEADRACE_LIVE__RESUME_FROM=group to go on at {taken}"
            )
        return taken

    def _is_due(self) -> bool:
        """Whether what came since the last commit is to be committed."""
        is_long = time.monotonic() - self._began > self._plan.transaction_seconds
        is_much = self._rows >= self._plan.transaction_records or self._bytes >= HELD_BYTES
        return is_much or (self._rows > 0 and is_long)

    def _open(self) -> None:
        if not self._is_open:
            self._producer.begin_transaction()
            self._is_open = True
            self._good = self._bad = self._late = 0

    def _commit(self, position: int) -> None:
        """Everything since the last commit and the position, or nothing."""
        self._open()
        for batch in self._held:
            self._send(batch)
        # A filter takes good ones away before they come here.
        records = position - self._start if self._route.filters else self._good + self._bad
        if self._bad > max(DEAD_LETTERS_ALLOWED, self._plan.dead_letter_limit * records):
            raised = f"raise HEADRACE_LIVE__DEAD_LETTER_LIMIT to send them to {self._route.dead_letters}"
            # With a state the groups of the good ones are written before, and the batch runs again as it was.
            cure = (
                f"the good ones are taken in already, so only this lets it go on: {raised}"
                if self._route.stateful
                else f"none of them was taken in: mend their producer or schema, or {raised}"
            )
            raise Refused(
                f"{self._bad} of {records} records of {self.range.topic}/{self.range.partition} before "
                f"offset {position} are bad, more than the share of {self._plan.dead_letter_limit:g} that is let through; {cure}"
            )
        offsets = [TopicPartition(self.range.topic, self.range.partition, position, self._metadata)]
        retried(
            lambda: self._producer.send_offsets_to_transaction(offsets, self._group, _TIMEOUT_SECONDS),
            _TRANSACTION_SECONDS,
        )
        retried(lambda: self._producer.commit_transaction(_TIMEOUT_SECONDS), _TRANSACTION_SECONDS)
        self.sent += self._good
        self.dead_letters += self._bad
        self.late += self._late
        self._is_open, self._start = False, position
        self._rows = self._bytes = 0
        self._held.clear()

"""One task's share of a batch of a query with state: the records of one state partition and its position, in one Kafka transaction.

Runs in Spark's Python workers. Spark computes batch N again from the state of batch N - 1, the offsets and the watermark that it has
logged, and gets the same rows in the same partitions. So the number of the last batch that a partition has written is its position: it
is committed with the records, and a batch that runs again is skipped where it was.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark import SparkContext, TaskContext
from pyspark.sql import DataFrame

from contracts.servers.brokers import retried
from contracts.servers.producer_config import LONGEST_TRANSACTION_SECONDS
from spark.runtime.workers.worker_input import map_whole
from spark.sinks.kafka.sink import Route
from spark.sinks.kafka.transaction import (
    RESULT,
    Headers,
    Refused,
    abort,
    answer,
    committed_positions,
    constant_headers,
    fenced,
    kept_reader,
    local_property,
    produce,
)
from spark.sinks.stateful.state_note import StateNote

_COLUMNS = ("key", "value", "ce_time", "id", "fault")
_BATCH = "headrace.state_batch"
_TIMEOUT_SECONDS = 30.0
_TRANSACTION_SECONDS = LONGEST_TRANSACTION_SECONDS
"""A batch's records of one partition can't be cut: with them goes the position."""


@dataclass(frozen=True, slots=True)
class StatePlan:
    """What every task needs to know, the same in every batch; `kafka` are librdkafka properties, secrets in clear. The
    `note` is one of the run, with what the batch reads.
    """

    kafka: Mapping[str, str]
    route: Route
    note: StateNote
    whole: bool = False
    """Whether a row with a fault is no record less, but the end of the batch."""


def state_route(route: Route) -> Route:
    """That of the positions: the group has one for each state partition, at the target's partition of the same number."""
    return Route(f"{route.query}.state", route.target, route.target, route.dead_letters)


def batch_given(context: SparkContext, batch: int) -> AbstractContextManager[None]:
    """Tell the tasks of the jobs begun meanwhile the number of their batch."""
    return local_property(context, _BATCH, str(batch))


def sending(rows: DataFrame, plan: StatePlan) -> DataFrame:
    """Rows of `spark.derivation.stateful.stateful_rows` in, of which those with a fault are left out; the query whose tasks send them, and give a row of `RESULT` each, out."""
    return map_whole(rows.select(*_COLUMNS), functools.partial(send, plan), RESULT)


def send(plan: StatePlan, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What `sending` makes of rows in, one row of `RESULT` out; `batches` raise at their end if rows are missing."""
    context = TaskContext.get()
    assert context is not None
    yield answer(_Task(plan, context.partitionId(), int(str(context.getLocalProperty(_BATCH)))), batches)


def fenced_states(
    kafka: Mapping[str, str], state: Route, partitions: Iterable[int]
) -> AbstractContextManager[dict[int, Producer]]:
    """The producers that may write for these state partitions, as long as nobody else comes; those of before may not any more."""
    return fenced(kafka, state, partitions, _TRANSACTION_SECONDS)


def commit_note(
    producer: Producer,
    consumer: Consumer,
    state: Route,
    partition: int,
    note: StateNote,
    send: Callable[[], object] = lambda: None,
) -> None:
    """What `send` sends, and the note beside the offset of a state partition, in one transaction."""
    offsets = [TopicPartition(state.target, partition, note.offset, note.as_metadata())]
    group = consumer.consumer_group_metadata()
    producer.begin_transaction()
    try:
        send()
        retried(lambda: producer.send_offsets_to_transaction(offsets, group, _TIMEOUT_SECONDS), _TRANSACTION_SECONDS)
        retried(lambda: producer.commit_transaction(_TIMEOUT_SECONDS), _TRANSACTION_SECONDS)
    except BaseException:
        abort(producer)
        raise


class _Task:
    def __init__(self, plan: StatePlan, partition: int, batch: int) -> None:
        self._plan, self._route, self._state, self._partition = plan, plan.route, state_route(plan.route), partition
        self._note = plan.note.model_copy(update={"batch": batch})
        self._ids = set[bytes]()
        self._constant = constant_headers(plan.route, plan.route.target)
        self.sent = self.skipped = self.unfit = 0
        self._first_fault = ""

    def result(self) -> dict[str, Any]:
        """`RESULT`, but for refused."""
        own = {"partition": self._partition, "sent": self.sent, "skipped": self.skipped}
        return own | {"unfit": self.unfit, "first_fault": self._first_fault}

    def run(self, batches: Iterator[pa.RecordBatch]) -> None:
        """Raises Refused before anything wrong is committed."""
        with fenced_states(self._plan.kafka, self._state, [self._partition]) as producers:
            producer = producers[self._partition]
            consumer = kept_reader(self._plan.kafka, self._state)
            if self._is_written(consumer):
                self.skipped = sum(batch.num_rows for batch in batches)
                return

            def send() -> None:
                # It returns if all rows came: else `batches` raise.
                for batch in batches:
                    self._send(producer, batch)

            commit_note(producer, consumer, self._state, self._partition, self._note, send)

    def _is_written(self, consumer: Consumer) -> bool:
        """Whether the records of this batch are in the topic. Raises Refused if they may be neither written nor skipped."""
        topic, partition = self._route.target, self._partition
        found = committed_positions(consumer, topic, [partition]).get(partition)
        before = None if found is None else StateNote.of(found.metadata)
        where = f"state partition {partition} of {self._route.query}"
        if before is None or before.run != self._note.run:
            other = "no run" if before is None else f"the run {before.run}"
            raise Refused(
                f"{where} has the position of {other}, and this is {self._note.run}: another process has begun, and this one stops"
            )
        if before.epoch > self._note.epoch:
            raise Refused(
                f"another process has taken {where} over (epoch {before.epoch} of the lease, this one has {self._note.epoch}): "
                "this one stops"
            )
        if before.batch not in (self._note.batch - 1, self._note.batch):
            raise Refused(
                f"{where} has written batch {before.batch}, and this is batch {self._note.batch}: the checkpoint does not fit "
                "what is written; start it again, and it says what to set"
            )
        assert self._note.reads is not None
        if not before.fits(self._note.batch, self._note.reads):
            raise Refused(
                f"{where} has written batch {before.batch} of other records than batch {self._note.batch} fits: start it again, and it says "
                "what to set"
            )
        return before.batch == self._note.batch

    def _send(self, producer: Producer, batch: pa.RecordBatch) -> None:
        columns = [batch.column(name).to_pylist() for name in _COLUMNS]
        of_batch = f"/{self._note.run}/{self._note.batch}".encode()
        for key, value, ce_time, own_id, fault in zip(*columns, strict=True):
            if fault and self._plan.whole:
                raise Refused(
                    f"{key.decode(errors='replace'):.200} of {self._route.query} can't be a record: {fault}. Without it the others would not be the list, so "
                    "nothing is written: change the function or the schema"
                )
            if fault:
                self.unfit += 1
                self._first_fault = self._first_fault or f"{own_id or key!r:.200}: {fault}"
                continue
            record_id = key + of_batch if own_id is None else own_id.encode()
            if record_id in self._ids:
                what = (
                    f"two groups of a batch have the key {key!r:.200}: make the key of all that {self._route.query} groups by"
                    if own_id is None
                    else f"a batch has {own_id} twice"
                )
                raise Refused(f"{what}; nothing of state partition {self._partition} was written")
            self._ids.add(record_id)
            headers: Headers = [("ce_id", record_id), ("ce_time", ce_time), *self._constant]
            produce(producer, self._route.target, value, key, headers)
            self.sent += 1

"""The exactly-once sink: rows, dead letters and positions in one Kafka transaction for each source partition."""

from __future__ import annotations

import functools
import json
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import prometheus_client
import structlog
from botocore.exceptions import BotoCoreError, ClientError
from confluent_kafka import KafkaException, TopicPartition
from pyspark.sql import DataFrame

from contracts.servers.brokers import partitions_of
from contracts.servers.ranges import OffsetRange
from contracts.settings import KafkaSettings
from spark.runtime.errors import SinkRefused, TakenOver
from spark.runtime.internals.prepared import Prepared, Unprepared
from spark.runtime.lifecycle import Lifecycle
from spark.runtime.settings import LiveSettings
from spark.sinks.kafka.offset_note import Mark, OffsetNote
from spark.sinks.kafka.resume import resume
from spark.sinks.kafka.sink import Route, ToRows, Written
from spark.sinks.kafka.succession import leave_epoch, wait_for_predecessor
from spark.sinks.kafka.tail import Taken, not_taken, read_known
from spark.sinks.kafka.transaction import (
    Plan,
    Refused,
    commit_position,
    committed_positions,
    fenced,
    given,
    note_of,
    position_reader,
    sending,
    take_nothing,
    unless_fenced,
)
from spark.sources.checkpoint_offsets import CheckpointOffsets
from spark.sources.kafka import starting_offsets

SKIPPED = prometheus_client.Counter(
    "headrace_replayed_records", "Records of a repeated batch that were committed before.", ["query"]
)

_TIMEOUT_SECONDS = 30.0
_KEEP_SECONDS = 3600.0
_KEEP_AGAIN_SECONDS = 60.0
_log = structlog.get_logger(__name__)


class ExactlyOnceSink:
    """The group's committed offset is the position: what lies below it is in the target topic, once.

    Real-time mode commits positions later than records. What its records tell beyond them is skipped once.
    """

    keeps_checkpoint = False

    def __init__(
        self, kafka: KafkaSettings, route: Route, live: LiveSettings, epoch: int = 0, notice_seconds: float = 0.0
    ) -> None:
        """`epoch` is that of the lease, 0 without one, `notice_seconds` how long its last holder may go on in real-time mode."""
        self._settings = kafka
        self._epoch = epoch
        self._notice_seconds = notice_seconds
        self._kafka = kafka.client_config()
        self._route = route
        self._live = live
        self._plan = Plan(self._kafka, route, epoch, live.dead_letter_limit)
        self.writing = threading.Lock()
        """Held while tasks write: whoever takes a position over meanwhile would fence them."""
        self.topic_id: str | None = None
        """The source topic's, since `positions`; None if it is not known."""
        self._taken: dict[int, Taken] = {}
        self._prepared = functools.lru_cache(maxsize=1)(self._prepare)

    def starting_offsets(self, checkpoint: CheckpointOffsets, stopping: threading.Event) -> str:
        """`positions`, as Spark's source takes them."""
        return starting_offsets(self._route.source, self.positions(checkpoint, stopping))

    def positions(self, checkpoint: CheckpointOffsets | None, stopping: threading.Event) -> dict[int, int]:
        """The group's offsets. Fences whoever else writes, so that nobody moves them any more. Without a `checkpoint`, of one with a state, it is the
        caller who compares them, and a partition without an offset is at its first record.

        Raises PositionsDisagree if the checkpoint is ahead, or records that nobody has taken in are gone from the topic,
        TakenOver if another process has begun meanwhile, and StopRequested.
        """
        topic = self._route.source
        reader = position_reader(self._kafka, self._route)
        try:
            partitions = partitions_of(reader, topic, _TIMEOUT_SECONDS)
            with fenced(self._kafka, self._route, partitions) as producers:
                with unless_fenced(self._route):
                    left = leave_epoch(producers, reader, self._route, partitions, self._epoch)
                wait_for_predecessor(left, self._notice_seconds, stopping)
                known = read_known(self._settings, self._route, reader, partitions, self._live.on_data_loss, stopping)
                before, other = ({}, None) if checkpoint is None else checkpoint.committed_of(topic, known.topic_id)
                evidence = {p: known.evidence(reader, topic, p, before.get(p), other) for p in partitions}
                if checkpoint is None:
                    evidence = {p: replace(each, is_forgotten=False) for p, each in evidence.items()}
                self.topic_id = known.topic_id
                positions = resume(evidence, topic, self._live.resume_from, self._live.on_data_loss)
                self._taken = known.taken_at(positions)
                for p, at in positions.items():
                    there = known.committed.get(p)
                    if there is not None and there.offset == at and note_of(there) == self._note(self._taken[p].mark):
                        continue
                    metadata = self._note(self._taken[p].mark).as_metadata()
                    with unless_fenced(self._route):
                        commit_position(producers[p], reader, TopicPartition(topic, p, at, metadata))
        finally:
            reader.close()
        return positions

    def write(self, batch: DataFrame, to_rows: ToRows, ranges: Sequence[OffsetRange]) -> Written:
        """Raises SinkRefused if a task found that writing would lose or double records."""
        # Of what real-time mode wrote ahead of its position.
        late = {
            at.partition: self._taken[at.partition]
            for at in ranges
            if at.partition in self._taken and self._taken[at.partition].reaches_beyond(at.start)
        }
        notes = {at.partition: self._note(late[at.partition].mark if at.partition in late else None) for at in ranges}
        metadata = {partition: note.as_metadata() for partition, note in notes.items()}
        prepared = self._prepare(to_rows, late) if late else self._prepared(to_rows)
        with self.writing, given(batch.sparkSession.sparkContext, ranges, metadata):
            found = prepared.collect(batch)
        results = [json.loads(text) for text in found]
        skipped = sum(result["skipped"] for result in results)
        if skipped:
            SKIPPED.labels(self._route.query).inc(skipped)
            _log.info("skipped what was committed before", records=skipped)
        refusals = [result["refused"] for result in results if result["refused"] is not None]
        if refusals:
            raise SinkRefused("; ".join(refusals))
        return _together(results)

    def move_to(self, positions: Mapping[int, int]) -> None:
        """Put the group's offsets there, whatever they are."""
        consumer = position_reader(self._kafka, self._route)
        try:
            with fenced(self._kafka, self._route, [*positions]) as producers:
                for partition, at in positions.items():
                    metadata = self._note(None).as_metadata()
                    commit_position(
                        producers[partition], consumer, TopicPartition(self._route.source, partition, at, metadata)
                    )
        finally:
            consumer.close()

    def pass_over(self, ranges: Sequence[OffsetRange]) -> None:
        """Move the positions to the ends of these ranges, of which nothing is to be written. Raises SinkRefused as `write` does."""
        metadata = self._note(None).as_metadata()
        with self.writing:
            for at in ranges:
                try:
                    take_nothing(self._plan, at, metadata)
                except Refused as error:
                    raise SinkRefused(str(error)) from None

    def _prepare(self, to_rows: ToRows, late: Mapping[int, Taken] | None = None) -> Prepared | Unprepared:
        def query(batch: DataFrame) -> DataFrame:
            return sending(not_taken(to_rows(batch), late or {}), self._plan)

        return Prepared(query) if self._live.plan_once else Unprepared(query)

    def _note(self, mark: Mark | None) -> OffsetNote:
        return OffsetNote(self._epoch, mark, self.topic_id)

    def keep_offsets(self, lifecycle: Lifecycle) -> None:
        """Commit the positions again every hour, until it is stopping: brokers forget those that nobody renews for days."""
        keep_offsets(lifecycle, self._route.query, self.writing, self.renew_offsets)

    def renew_offsets(self) -> None:
        """Commit every position of the group again, each in a transaction of its partition's own producer."""
        topic = self._route.source
        consumer = position_reader(self._kafka, self._route)
        try:
            for partition in partitions_of(consumer, topic, _TIMEOUT_SECONDS):
                with fenced(self._kafka, self._route, [partition]) as producers:
                    position = committed_positions(consumer, topic, [partition]).get(partition)
                    if position is not None:
                        commit_position(producers[partition], consumer, position)
        finally:
            consumer.close()


def keep_offsets(lifecycle: Lifecycle, query: str, writing: threading.Lock, renew: Callable[[], None]) -> None:
    """Call `renew` every hour, until it is stopping; between batches only, or it would fence the sink's own tasks."""
    pause = _KEEP_SECONDS
    while not lifecycle.stopping.wait(pause):
        try:
            with writing:
                if lifecycle.lease is not None:
                    # One that slept would fence who has taken over.
                    lifecycle.lease.check()
                renew()
            pause = _KEEP_SECONDS
        except TakenOver:
            return  # which the queries find out as well
        except (KafkaException, BotoCoreError, ClientError) as error:
            _log.warning("offsets not renewed", query=query, error=str(error))
            pause = _KEEP_AGAIN_SECONDS


def _together(results: Sequence[Mapping[str, Any]]) -> Written:
    rows = sum(result["sent"] + result["dead_letters"] + result["late"] for result in results)
    unmatched: Counter[str] = Counter()
    for result in results:
        unmatched.update(result["unmatched"])
    return Written(
        sum(result["dead_letters"] for result in results),
        min((result["oldest_ms"] for result in results if result["oldest_ms"] is not None), default=None),
        sum(result["sum_ms"] for result in results) / rows if rows else None,
        unmatched,
        sum(result["late"] for result in results),
    )

"""A group whose positions lag behind what was written in real-time mode: `Takeover`."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Sequence
from contextlib import closing

import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from contracts.servers.brokers import watermarks
from contracts.servers.ranges import OffsetRange
from spark.queries.real_time.positions import RealTimePositions
from spark.records.decode import events
from spark.records.schemas import WriterSchemas
from spark.runtime.settings import SparkSettings
from spark.sinks.kafka import tail
from spark.sinks.kafka.exactly_once import ExactlyOnceSink
from spark.sinks.kafka.offset_note import Mark, OffsetNote
from spark.sinks.kafka.sink import Route, outgoing
from spark.sinks.kafka.tail import Known, Taken, mark, read_known
from spark.sinks.kafka.transaction import committed_positions, position_reader
from spark.sources.checkpoint_offsets import CheckpointOffsets
from spark.sources.kafka import kafka_options
from tests.producers import ordered
from tests.spark.examples import DISPATCHED, SCHEMA, Topics


class Takeover:
    """A group whose positions lag behind the records that were written: raw partition 0 of this test's topics."""

    def __init__(self, spark: SparkSession, settings: SparkSettings, topics: Topics) -> None:
        dispatched = topics.dispatched
        self.route = Route(
            f"q-{uuid.uuid4().hex[:8]}", dispatched.name, topics.enriched.name, dispatched.dead_letter_topic
        )
        self._spark = spark
        self._settings = settings
        self._topics = topics

    def commit(self, position: int, partition: int = 0) -> None:
        """As real-time mode does at an interval's end, with the target topics' ends of now."""
        reader = position_reader(self._settings.kafka.client_config(), self.route)
        found = mark(reader, self.route)
        reader.commit(
            offsets=[TopicPartition(self.route.source, partition, position, OffsetNote(0, found).as_metadata())],
            asynchronous=False,
        )
        reader.close()

    def write(
        self,
        *offsets: int,
        topic: str | None = None,
        writer: str | None = None,
        partition: int = 0,
        into: int | None = None,
    ) -> None:
        """As a real-time query does: a record for each of these raw ones, in no transaction; `into` a partition of the target's."""
        producer = ordered(self._settings.kafka.client_config())
        is_dead = topic == self.route.dead_letters
        by = writer or self.route.query
        name = ("__connect.errors.connector.name", by) if is_dead else ("ce_source", f"/spark/{by}")
        for offset in offsets:
            headers: list[tuple[str, str | bytes | None]] = [
                ("ce_id", f"{self.route.source}/{partition}/{offset}"),
                name,
            ]
            producer.produce(
                topic or self.route.target, b"written", partition=offset % 2 if into is None else into, headers=headers
            )
        assert producer.flush(30) == 0

    def taken(self) -> Taken:
        reader = position_reader(self._settings.kafka.client_config(), self.route)
        try:
            return self.known(reader, [0], threading.Event()).taken[0]
        finally:
            reader.close()

    def known(self, reader: Consumer, partitions: Sequence[int], stopping: threading.Event) -> Known:
        return read_known(
            self._settings.kafka, self.route, reader, partitions, self._settings.live.on_data_loss, stopping
        )

    def ends(self) -> Mark:
        """Of now."""
        with closing(position_reader(self._settings.kafka.client_config(), self.route)) as reader:
            return mark(reader, self.route)

    def send_in_transactions(self, count: int, partition: int = 0, size: int = 1) -> None:
        """Raw records, `size` in each transaction, whose marker is an offset, too."""
        producer = ordered(self._settings.kafka.client_config() | {"transactional.id": f"t-{uuid.uuid4()}"})
        producer.init_transactions(30)
        for _ in range(count):
            producer.begin_transaction()
            for _ in range(size):
                producer.produce(self.route.source, b"in a transaction", partition=partition)
            producer.commit_transaction(30)
        producer.close()

    def write_id(self, event_id: str, *headers: tuple[str, bytes]) -> None:
        """A record of the target topic with this id."""
        producer = ordered(self._settings.kafka.client_config())
        own = [("ce_id", event_id.encode()), ("ce_source", self.route.ce_source.encode())]
        producer.produce(self.route.target, b"written", headers=[*own, *headers])
        assert producer.flush(30) == 0

    def take_over(self, end: int, epoch: int = 0) -> ExactlyOnceSink:
        """Write exactly once, from where its sink says to `end`."""
        sink = self.sink(epoch)
        self.batch(sink, self.position(), end)
        return sink

    def checkpoint(self) -> CheckpointOffsets:
        return CheckpointOffsets(self._settings.s3, f"checkpoints/{self.route.query}")

    def real_time(self, epoch: int = 1, **live: object) -> RealTimePositions:
        """Of a process in real-time mode."""
        settings = self._settings.model_copy(update={"live": self._settings.live.model_copy(update=live)})
        return RealTimePositions(settings, self.route, self.checkpoint(), epoch)

    def sink(self, epoch: int = 0) -> ExactlyOnceSink:
        """One that has begun."""
        sink = ExactlyOnceSink(self._settings.kafka, self.route, self._settings.live, epoch)
        sink.starting_offsets(self.checkpoint(), threading.Event())
        return sink

    def batch(self, sink: ExactlyOnceSink, start: int, end: int) -> None:
        raw = self._spark.read.format("kafka").options(
            **kafka_options(self._settings.kafka),
            assign=f'{{"{self.route.source}": [0]}}',
            startingOffsets=f'{{"{self.route.source}": {{"0": {start}}}}}',
            endingOffsets=f'{{"{self.route.source}": {{"0": {end}}}}}',
            includeHeaders="true",
        )
        topics = self._topics
        schemas = WriterSchemas(topics.dispatched.subject, SCHEMA, {topics.schema_ids[DISPATCHED]: SCHEMA})

        def to_rows(batch: DataFrame) -> DataFrame:
            return outgoing(events(batch, schemas), F.col("__record.value"), F.lit(""))

        sink.write(raw.load(), to_rows, [OffsetRange(self.route.source, 0, start, end)])

    def position(self) -> int:
        reader = position_reader(self._settings.kafka.client_config(), self.route)
        try:
            return committed_positions(reader, self.route.source, [0])[0].offset
        finally:
            reader.close()

    def committed(self) -> dict[int, tuple[int, str]]:
        """The group's offsets, and what stands beside them."""
        with closing(position_reader(self._settings.kafka.client_config(), self.route)) as reader:
            found = committed_positions(reader, self.route.source, [0, 1])
        return {partition: (at.offset, at.metadata or "") for partition, at in found.items()}

    def end_behind_the_log(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The target's ends are told as one more than there is, so that a tail never ends."""

        def one_more(consumer: Consumer, topic: str, partition: int, seconds: float) -> tuple[int, int]:
            low, high = watermarks(consumer, topic, partition, seconds)
            return low, high + (topic == self.route.target)

        monkeypatch.setattr(tail, "watermarks", one_more)

    def written(self) -> list[int]:
        """The raw offsets in the target topic, lowest first."""
        ids = [dict(m.headers() or [])["ce_id"] for m in self._topics.read(self.route.target)]
        return sorted(int(str(found).strip("b'").rpartition("/")[2]) for found in ids)

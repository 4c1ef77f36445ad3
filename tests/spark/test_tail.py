"""Records that real-time mode wrote ahead of its positions, and what the exactly-once sink makes of them."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark import exactly_once
from spark.at_least_once import AtLeastOnceSink
from spark.decode import decode
from spark.errors import PositionsDisagree, SinkRefused, TableTaken
from spark.exactly_once import ExactlyOnceSink
from spark.kafka import kafka_options
from spark.offsets import OffsetRange
from spark.real_time_positions import RealTimePositions
from spark.resume import CheckpointOffsets, resume
from spark.schemas import WriterSchemas
from spark.settings import SparkSettings
from spark.sink import Route, outgoing
from spark.tail import Taken, mark, read_tail
from spark.transaction import committed_positions, position_reader
from tests.spark.records import DEPARTED, SCHEMA, Topics


class Takeover:
    """A group whose positions lag behind the records that were written: raw partition 0 of this test's topics."""

    def __init__(self, spark: SparkSession, settings: SparkSettings, topics: Topics) -> None:
        departed = topics.departed
        self.route = Route(f"q-{uuid.uuid4().hex[:8]}", departed.name, topics.enriched.name, departed.dead_letter_topic)
        self._spark = spark
        self._settings = settings
        self._topics = topics

    def commit(self, position: int) -> None:
        """As real-time mode does at an interval's end, with the target topics' ends of now."""
        reader = position_reader(self._settings.kafka.client_config(), self.route)
        metadata = mark(reader, self.route).as_metadata(0)
        reader.commit(offsets=[TopicPartition(self.route.source, 0, position, metadata)], asynchronous=False)
        reader.close()

    def write(self, *offsets: int, topic: str | None = None, writer: str | None = None) -> None:
        """As a real-time query does: a record for each of these raw ones, in no transaction."""
        producer = Producer(self._settings.kafka.client_config())
        name = [("__connect.errors.connector.name", writer or self.route.query)] if topic else []
        for offset in offsets:
            headers: list[tuple[str, str | bytes | None]] = [("ce_id", f"{self.route.source}/0/{offset}"), *name]
            producer.produce(topic or self.route.target, b"written", partition=offset % 2, headers=headers)
        assert producer.flush(30) == 0

    def taken(self) -> Taken:
        reader = position_reader(self._settings.kafka.client_config(), self.route)
        try:
            return read_tail(self._settings.kafka, self.route, committed_positions(reader, self.route.source, [0]))[0]
        finally:
            reader.close()

    def take_over(self, end: int, epoch: int = 0) -> ExactlyOnceSink:
        """Write exactly once, from where its sink says to `end`."""
        sink = self.sink(epoch)
        self.batch(sink, self.position(), end)
        return sink

    def checkpoint(self) -> CheckpointOffsets:
        return CheckpointOffsets(self._settings.s3, f"checkpoints/{self.route.query}")

    def sink(self, epoch: int = 0) -> ExactlyOnceSink:
        """One that has begun."""
        sink = ExactlyOnceSink(self._settings.kafka, self.route, self._settings.live, epoch)
        sink.starting_offsets(self.checkpoint())
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
        schemas = WriterSchemas(topics.departed.subject, SCHEMA, {topics.schema_ids[DEPARTED]: SCHEMA})

        def to_rows(batch: DataFrame) -> DataFrame:
            return outgoing(decode(batch, schemas), F.col("record.value"), F.lit(""))

        sink.write(raw.load(), to_rows, [OffsetRange(self.route.source, 0, start, end)])

    def position(self) -> int:
        reader = position_reader(self._settings.kafka.client_config(), self.route)
        try:
            return committed_positions(reader, self.route.source, [0])[0].offset
        finally:
            reader.close()

    def written(self) -> list[int]:
        """The raw offsets in the target topic, lowest first."""
        ids = [dict(m.headers() or [])["ce_id"] for m in self._topics.read(self.route.target)]
        return sorted(int(str(found).strip("b'").rpartition("/")[2]) for found in ids)


@pytest.fixture
def takeover(spark: SparkSession, settings: SparkSettings, topics: Topics) -> Takeover:
    return Takeover(spark, settings, topics)


def test_what_is_written_counts_up_to_the_first_gap_and_beyond(takeover: Takeover, topics: Topics) -> None:
    topics.send_departures(*"abcdef")
    takeover.write(0)
    takeover.commit(1)
    takeover.write(1, 3, 4)
    takeover.write(2, topic=takeover.route.dead_letters, writer="another")
    taken = takeover.taken()
    assert (taken.position, taken.beyond) == (2, frozenset({3, 4}))
    assert taken.mark is not None
    takeover.write(2, topic=takeover.route.dead_letters)
    assert takeover.taken() == Taken(5)


def test_markers_of_transactions_are_no_gap(takeover: Takeover, topics: Topics, settings: SparkSettings) -> None:
    topics.send_departures("a")
    producer = Producer(settings.kafka.client_config() | {"transactional.id": f"t-{uuid.uuid4()}"})
    producer.init_transactions(30)
    for _ in range(2):
        producer.begin_transaction()
        producer.produce(topics.departed.name, b"in a transaction", partition=0)
        producer.commit_transaction(30)
    producer.close()
    takeover.commit(0)
    takeover.write(0, 1, 3)
    assert takeover.taken() == Taken(4)


def delete(settings: SparkSettings, topic: str, before: int) -> None:
    admin = AdminClient({**settings.kafka.client_config(), "log_level": 0})
    for future in admin.delete_records([TopicPartition(topic, 0, before)]).values():
        future.result()


def test_a_gap_that_was_deleted_unread_is_a_loss_and_no_way_to_the_end(
    takeover: Takeover, topics: Topics, settings: SparkSettings
) -> None:
    topics.send_departures(*map(str, range(100)))
    takeover.commit(10)
    takeover.write(*range(10, 15), *range(16, 30))
    delete(settings, takeover.route.source, before=50)
    assert takeover.taken().position == 15
    with pytest.raises(PositionsDisagree, match="35 records from offset 15 up to 50 are gone"):
        takeover.sink()


def test_of_what_was_purged_behind_a_mark_the_rest_is_found(
    takeover: Takeover, topics: Topics, settings: SparkSettings
) -> None:
    topics.send_departures(*"abcdef")
    takeover.commit(0)
    takeover.write(0, 1, 2, topic=takeover.route.dead_letters)
    takeover.write(0)
    delete(settings, takeover.route.dead_letters, before=1)
    assert takeover.taken() == Taken(3)


def test_an_offset_that_the_brokers_have_forgotten_is_missed(
    takeover: Takeover, topics: Topics, settings: SparkSettings
) -> None:
    topics.send_departures(*"abc")
    takeover.sink()  # nothing is written yet, so nothing is missing
    takeover.write(0, 1, 2)
    admin = AdminClient({**settings.kafka.client_config(), "log_level": 0})
    for future in admin.delete_consumer_groups([takeover.route.query]).values():
        future.result()
    starts: list[Callable[[], object]] = [
        takeover.sink,
        RealTimePositions(settings, takeover.route, takeover.checkpoint(), epoch=1).find,
        partial(AtLeastOnceSink(settings.kafka, takeover.route, settings.live).starting_offsets, takeover.checkpoint()),
    ]
    for start in starts:
        with pytest.raises(PositionsDisagree, match="the consumer group has no offset, but the target topic has"):
            start()


def test_one_that_slept_while_it_began_moves_no_position_of_its_successor(
    takeover: Takeover, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics.send_departures(*"abcdef")
    seen: list[Any] = []

    def slow(*asked: Any) -> dict[int, int]:
        if not seen:
            seen.append(asked)
            takeover.take_over(4, epoch=2)
        return resume(*asked)

    monkeypatch.setattr(exactly_once, "resume", slow)
    with pytest.raises(TableTaken, match="another process has begun to run"):
        takeover.sink(epoch=1)
    assert (takeover.written(), takeover.position()) == ([0, 1, 2, 3], 4)


def test_exactly_once_takes_over_without_loss_or_repeat(takeover: Takeover, topics: Topics) -> None:
    topics.send_departures(*"abcdef")
    takeover.commit(0)
    takeover.write(0, 1, 3)
    takeover.take_over(4)
    assert (takeover.written(), takeover.position()) == ([0, 1, 2, 3], 4)
    takeover.take_over(6)
    assert (takeover.written(), takeover.position()) == ([0, 1, 2, 3, 4, 5], 6)


def test_one_that_slept_before_its_batch_writes_nothing_once_real_time_mode_has_taken_over(
    takeover: Takeover, topics: Topics, settings: SparkSettings
) -> None:
    topics.send_departures(*"abcdef")
    takeover.take_over(2, epoch=1)
    sleeper = takeover.sink(epoch=1)
    start = takeover.position()
    successor = RealTimePositions(settings, takeover.route, takeover.checkpoint(), epoch=2)
    assert successor.find()[0].position == 2
    takeover.write(2, 3)
    with pytest.raises(
        SinkRefused, match=r"has taken .*/0 over in real-time mode \(epoch 2 of the lease, this one has 1"
    ):
        takeover.batch(sleeper, start, 6)
    assert (takeover.written(), takeover.position()) == ([0, 1, 2, 3], 2)
    assert successor.find()[0].position == 4
    successor.close()
    # The next one, and one whose lease began anew with its object store, go on.
    takeover.take_over(5, epoch=3)
    takeover.take_over(6, epoch=1)
    assert (takeover.written(), takeover.position()) == ([0, 1, 2, 3, 4, 5], 6)


def test_at_least_once_begins_where_the_mode_before_it_was(
    takeover: Takeover, topics: Topics, settings: SparkSettings
) -> None:
    topics.send_departures(*"abc")
    takeover.commit(1)
    takeover.write(1)
    sink = AtLeastOnceSink(settings.kafka, takeover.route, settings.live)
    found = sink.starting_offsets(CheckpointOffsets(settings.s3, f"checkpoints/{takeover.route.query}"))
    assert json.loads(found) == {takeover.route.source: {"0": 2, "1": 0}}


def test_a_take_over_that_is_killed_before_the_gap_is_filled_still_repeats_nothing(
    takeover: Takeover, topics: Topics
) -> None:
    topics.send_departures(*"abcdef")
    takeover.commit(0)
    takeover.write(0, 2, 4)
    takeover.take_over(2)
    assert (takeover.written(), takeover.position()) == ([0, 1, 2, 4], 2)
    takeover.take_over(6)
    assert (takeover.written(), takeover.position()) == ([0, 1, 2, 3, 4, 5], 6)

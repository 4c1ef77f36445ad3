"""Records that real-time mode wrote ahead of its positions, and what the exactly-once sink makes of them."""

from __future__ import annotations

import json
import re
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic
from prometheus_client import REGISTRY
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from contracts.errors import ConsumeError
from contracts.servers.brokers import watermarks
from contracts.servers.ranges import OffsetRange
from spark.queries.real_time import meter as meter_module
from spark.queries.real_time import positions as real_time_positions
from spark.queries.real_time.meter import Meter
from spark.queries.real_time.positions import RealTimePositions
from spark.records.decode import events
from spark.records.schemas import WriterSchemas
from spark.runtime.errors import PositionsDisagree, PositionsTooLong, SinkRefused, StopRequested, TakenOver
from spark.runtime.settings import SparkSettings
from spark.sinks.kafka import exactly_once, tail
from spark.sinks.kafka.at_least_once import AtLeastOnceSink
from spark.sinks.kafka.exactly_once import ExactlyOnceSink
from spark.sinks.kafka.follower import Follower
from spark.sinks.kafka.offset_note import Mark, OffsetNote
from spark.sinks.kafka.resume import resume
from spark.sinks.kafka.sink import Route, outgoing
from spark.sinks.kafka.tail import Known, Taken, mark, not_taken, read_known
from spark.sinks.kafka.transaction import committed_positions, position_reader
from spark.sources.checkpoint_offsets import CheckpointOffsets
from spark.sources.kafka import kafka_options
from spark.sources.source_topic import SourceTopic, topic_id
from tests.producers import ordered
from tests.spark.examples import DISPATCHED, SCHEMA, Topics
from tests.spark.live_query import wait_for


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

    def commit(self, position: int) -> None:
        """As real-time mode does at an interval's end, with the target topics' ends of now."""
        reader = position_reader(self._settings.kafka.client_config(), self.route)
        found = mark(reader, self.route)
        reader.commit(
            offsets=[TopicPartition(self.route.source, 0, position, OffsetNote(0, found).as_metadata())],
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


@pytest.fixture
def takeover(spark: SparkSession, settings: SparkSettings, topics: Topics) -> Takeover:
    return Takeover(spark, settings, topics)


@pytest.mark.parametrize("held", [250_000, 2])
def test_what_is_written_counts_up_to_the_first_gap_and_beyond(
    held: int, takeover: Takeover, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail, "_MOST_HELD", held)
    topics.send_dispatches(*"abcdef")
    takeover.write(0)
    takeover.commit(1)
    takeover.write(1, 3, 4)
    takeover.write(2, topic=takeover.route.dead_letters, writer="another")
    taken = takeover.taken()
    assert (taken.position, taken.beyond) == (2, (range(3, 5),))
    assert taken.mark is not None
    takeover.write(2, topic=takeover.route.dead_letters)
    assert takeover.taken() == Taken(5)


@pytest.mark.long
def test_a_topic_that_the_pipeline_writes_no_more_is_looked_at_from_the_mark_on(
    takeover: Takeover, topics: Topics, settings: SparkSettings
) -> None:
    topics.send_dispatches(*"abcdef")
    takeover.commit(0)
    takeover.write(0, 1, 3)
    went, takeover.route = takeover.route, replace(takeover.route, target=topics.enriched.dead_letter_topic)
    assert takeover.taken() == Taken(2, (range(3, 4),), takeover.taken().mark)
    takeover.take_over(6)
    assert takeover.written() == [2, 4, 5]
    # One that is gone, too, tells nothing.
    takeover.commit(6)
    first = takeover.real_time()
    first.find(threading.Event())
    first.commit_interval({0: 6}, Mark({went.target: (0, 0), f"{went.target}-gone": (4, 0)}))
    assert takeover.taken() == Taken(6)


def test_what_another_pipeline_wrote_to_a_topic_that_comes_in_is_not_ours(takeover: Takeover, topics: Topics) -> None:
    topics.send_dispatches(*"abcd")
    takeover.commit(0)
    takeover.write(0, 1)
    other = topics.enriched.dead_letter_topic
    takeover.write(2, 3, topic=other, writer="another")
    takeover.route = replace(takeover.route, target="", branches=(("a", takeover.route.target), ("b", other)))
    assert takeover.taken() == Taken(2)
    takeover.write(2, topic=other)
    assert takeover.taken() == Taken(3)


def test_markers_of_transactions_are_no_gap(takeover: Takeover, topics: Topics, settings: SparkSettings) -> None:
    topics.send_dispatches("a")
    takeover.send_in_transactions(2)
    takeover.commit(0)
    takeover.write(0, 1, 3)
    assert takeover.taken() == Taken(5)


def delete(settings: SparkSettings, topic: str, before: int) -> None:
    admin = AdminClient({**settings.kafka.client_config(), "log_level": 0})
    for future in admin.delete_records([TopicPartition(topic, 0, before)]).values():
        future.result()


def test_a_gap_that_was_deleted_unread_is_a_loss_and_no_way_to_the_end(
    takeover: Takeover, topics: Topics, settings: SparkSettings
) -> None:
    topics.send_dispatches(*map(str, range(100)))
    takeover.commit(10)
    takeover.write(*range(10, 15), *range(16, 30))
    delete(settings, takeover.route.source, before=50)
    assert takeover.taken().position == 15
    with pytest.raises(PositionsDisagree, match="35 records from offset 15 up to 50 are gone"):
        takeover.sink()


def test_of_what_was_purged_behind_a_mark_the_rest_is_found(
    takeover: Takeover, topics: Topics, settings: SparkSettings
) -> None:
    topics.send_dispatches(*"abcdef")
    takeover.commit(0)
    takeover.write(0, 1, 2, topic=takeover.route.dead_letters)
    takeover.write(0)
    delete(settings, takeover.route.dead_letters, before=1)
    assert takeover.taken() == Taken(3)


def test_an_offset_that_the_brokers_have_forgotten_is_missed(
    takeover: Takeover, topics: Topics, settings: SparkSettings
) -> None:
    topics.send_dispatches(*"abc")
    takeover.sink()  # nothing is written yet, so nothing is missing
    takeover.write(0, 1, 2)
    admin = AdminClient({**settings.kafka.client_config(), "log_level": 0})
    for future in admin.delete_consumer_groups([takeover.route.query]).values():
        future.result()
    asked = threading.Event()
    starts: list[Callable[[], object]] = [
        takeover.sink,
        partial(takeover.real_time().find, asked),
        partial(
            AtLeastOnceSink(settings.kafka, takeover.route, settings.live).starting_offsets,
            takeover.checkpoint(),
            asked,
        ),
    ]
    for start in starts:
        with pytest.raises(PositionsDisagree, match="the consumer group has no offset, but the target topic has"):
            start()


def test_one_that_slept_while_it_began_moves_no_position_of_its_successor(
    takeover: Takeover, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics.send_dispatches(*"abcdef")
    seen: list[Any] = []

    def slow(*asked: Any) -> dict[int, int]:
        if not seen:
            seen.append(asked)
            takeover.take_over(4, epoch=2)
        return resume(*asked)

    monkeypatch.setattr(exactly_once, "resume", slow)
    with pytest.raises(TakenOver, match="another process has begun to run"):
        takeover.sink(epoch=1)
    assert (takeover.written(), takeover.position()) == ([0, 1, 2, 3], 4)


@pytest.mark.parametrize("has_run", [False, True])
def test_one_that_slept_while_it_read_the_tail_moves_no_position_of_its_successor(
    takeover: Takeover, topics: Topics, monkeypatch: pytest.MonkeyPatch, has_run: bool
) -> None:
    topics.send_dispatches(*"abcdef")
    takeover.commit(0)
    first, successor, asked = takeover.real_time(epoch=1), takeover.real_time(epoch=2), threading.Event()
    if has_run:
        first.find(asked)

    def slow(*of: Any) -> Known:
        known = read_known(*of)
        monkeypatch.undo()
        successor.find(asked)
        takeover.write(0, 1)
        successor.commit_interval({0: 2}, takeover.ends())
        return known

    monkeypatch.setattr(real_time_positions, "read_known", slow)
    with pytest.raises(TakenOver):
        first.find(asked)
    assert takeover.position() == 2


def test_exactly_once_takes_over_without_loss_or_repeat(takeover: Takeover, topics: Topics) -> None:
    topics.send_dispatches(*"abcdef")
    takeover.commit(0)
    takeover.write(0, 1, 3)
    takeover.take_over(4)
    assert (takeover.written(), takeover.position()) == ([0, 1, 2, 3], 4)
    takeover.take_over(6)
    assert (takeover.written(), takeover.position()) == ([0, 1, 2, 3, 4, 5], 6)


@pytest.mark.long
def test_one_that_slept_before_its_batch_writes_nothing_once_real_time_mode_has_taken_over(
    takeover: Takeover, topics: Topics, settings: SparkSettings
) -> None:
    topics.send_dispatches(*"abcdef")
    takeover.take_over(2, epoch=1)
    sleeper = takeover.sink(epoch=1)
    start = takeover.position()
    successor = takeover.real_time(epoch=2)
    assert successor.find(threading.Event())[0].position == 2
    takeover.write(2, 3)
    with pytest.raises(SinkRefused, match=r"has taken .*/0 over \(epoch 2 of the lease, this one has 1"):
        takeover.batch(sleeper, start, 6)
    assert (takeover.written(), takeover.position()) == ([0, 1, 2, 3], 2)
    assert successor.find(threading.Event())[0].position == 4
    successor.close()
    # The next one, and one whose lease began anew with its object store, go on.
    takeover.take_over(5, epoch=3)
    takeover.take_over(6, epoch=1)
    assert (takeover.written(), takeover.position()) == ([0, 1, 2, 3, 4, 5], 6)


def test_at_least_once_begins_where_the_mode_before_it_was(
    takeover: Takeover, topics: Topics, settings: SparkSettings
) -> None:
    topics.send_dispatches(*"abc")
    takeover.commit(1)
    takeover.write(1)
    sink = AtLeastOnceSink(settings.kafka, takeover.route, settings.live)
    found = sink.starting_offsets(takeover.checkpoint(), threading.Event())
    assert json.loads(found) == {takeover.route.source: {"0": 2, "1": 0}}


def test_a_take_over_that_is_killed_before_the_gap_is_filled_still_repeats_nothing(
    takeover: Takeover, topics: Topics
) -> None:
    topics.send_dispatches(*"abcdef")
    takeover.commit(0)
    takeover.write(0, 2, 4)
    takeover.take_over(2)
    assert (takeover.written(), takeover.position()) == ([0, 1, 2, 4], 2)
    takeover.take_over(6)
    assert (takeover.written(), takeover.position()) == ([0, 1, 2, 3, 4, 5], 6)


@pytest.mark.parametrize("reaches_the_end", [False, True])
def test_what_was_written_of_a_partition_that_was_added_meanwhile_is_found(
    takeover: Takeover, topics: Topics, reaches_the_end: bool
) -> None:
    topics.send_dispatches(*"abc")
    takeover.write(0)
    takeover.commit(1)
    topics.send_dispatches(*"abcd", partition=1)
    takeover.write(*([0, 1, 2, 3] if reaches_the_end else [0, 2]), partition=1)
    found = takeover.real_time().find(threading.Event())
    assert (found[1].position, found[1].beyond) == ((4, ()) if reaches_the_end else (1, (range(2, 3),)))


def test_a_partition_that_others_forgot_is_missed_though_a_younger_one_has_an_offset(
    takeover: Takeover, topics: Topics
) -> None:
    topics.send_dispatches(*"abc")
    topics.send_dispatches(*"abc", partition=1)
    takeover.write(0, 1, 2, partition=1)
    takeover.commit(0)
    takeover.write(0)
    with pytest.raises(PositionsDisagree, match="/1: the consumer group has no offset, but the target topic has"):
        takeover.real_time().find(threading.Event())


def test_with_no_offset_at_all_an_idle_partition_is_forgotten_as_the_others_are(
    takeover: Takeover, topics: Topics
) -> None:
    topics.send_dispatches(*"abc")
    takeover.write(0, 1, 2, partition=1)
    with pytest.raises(PositionsDisagree, match="/0: the consumer group has no offset, but the target topic has"):
        takeover.real_time().find(threading.Event())


def test_an_intervals_commit_keeps_the_mark_of_what_was_written_ahead(takeover: Takeover, topics: Topics) -> None:
    topics.send_dispatches(*"abcdef")
    takeover.commit(0)
    takeover.write(0, 1, 4)
    first = takeover.real_time()
    assert first.find(threading.Event())[0].beyond == (range(4, 5),)
    takeover.write(2)
    first.commit_interval({0: 3}, takeover.ends())
    second = takeover.real_time(epoch=2)
    assert second.find(threading.Event())[0] == Taken(3, (range(4, 5),), second.find(threading.Event())[0].mark)
    takeover.write(3, 5)
    second.commit_interval({0: 6}, takeover.ends())
    assert takeover.taken() == Taken(6)


def test_a_record_some_parts_of_which_were_written_is_not_taken(takeover: Takeover, topics: Topics) -> None:
    topics.send_dispatches(*"abcde")
    takeover.route = replace(takeover.route, filters=True, parts=True)
    takeover.commit(0)
    for offset, part, count in (
        (0, 0, 2),
        (0, 1, 2),
        (1, 0, 2),
        (1, 0, 2),
        (2, 1, 2),
        (2, 0, 2),
        (3, 0, 0),
        (4, 0, 3),
        (4, 1, 3),
        (4, 0, 2),
    ):
        takeover.write_id(f"{takeover.route.source}/0/{offset}/{part}", ("ce_parts", str(count).encode()))
    takeover.write_id(f"{takeover.route.source}/0/3", ("ce_parts", b"1"))
    taken = takeover.taken()
    assert (taken.position, taken.beyond) == (1, (range(2, 3),))


@pytest.mark.parametrize("place", ["²/1", "0/²", f"0/{'9' * 5000}", "0/-1", "00/1", "0/+1", "0/9999999999999", "77/0"])
def test_an_id_that_is_no_coordinate_of_a_record_there_says_nothing(
    takeover: Takeover, topics: Topics, place: str
) -> None:
    topics.send_dispatches("a")
    takeover.commit(0)
    takeover.write(0)
    takeover.write_id(f"{takeover.route.source}/{place}")
    assert takeover.taken() == Taken(1)


def test_what_was_purged_behind_a_mark_is_told_and_counted(
    takeover: Takeover, topics: Topics, settings: SparkSettings
) -> None:
    topics.send_dispatches(*"abcdef")
    takeover.write(0, topic=takeover.route.target)
    takeover.commit(1)
    takeover.write(2, 4)
    delete(settings, takeover.route.target, before=2)
    with structlog.testing.capture_logs() as logs:
        assert takeover.taken().beyond == (range(4, 5),)
    (told,) = [line for line in logs if line["log_level"] == "error"]
    assert (told["topic"], told["partition"], told["first"], told["up_to"]) == (takeover.route.target, 0, 1, 2)
    labels = {"query": takeover.route.query, "topic": takeover.route.target}
    assert REGISTRY.get_sample_value("headrace_tail_records_gone_total", labels) == 1


def test_a_target_that_ends_before_a_mark_was_made_anew(takeover: Takeover, topics: Topics) -> None:
    topics.send_dispatches(*"abc")
    takeover.commit(0)
    takeover.write(0)
    first = takeover.real_time()
    first.commit_interval({0: 0}, Mark({takeover.route.target: (5, 0), takeover.route.dead_letters: (0, 0)}))
    with pytest.raises(PositionsDisagree, match=r"/0 ends at 1, before the mark .* 5: .*ON_DATA_LOSS=continue"):
        takeover.real_time().find(threading.Event())
    assert takeover.real_time(on_data_loss="continue").find(threading.Event())[0].position == 1


def test_going_on_after_a_loss_repeats_nothing_that_was_written_ahead(
    takeover: Takeover, topics: Topics, settings: SparkSettings
) -> None:
    topics.send_dispatches(*"abcdef")
    takeover.commit(0)
    takeover.write(0, 3, 5)
    delete(settings, takeover.route.source, before=3)
    positions = takeover.real_time(on_data_loss="continue")
    assert positions.find(threading.Event())[0].beyond == (range(3, 4), range(5, 6))
    assert positions.find(threading.Event())[0] == Taken(4, (range(5, 6),), positions.find(threading.Event())[0].mark)


def test_one_hole_in_a_long_interval_is_two_runs(spark: SparkSession) -> None:
    beyond = (range(1, 500_000), range(500_001, 1_000_001))
    rows = spark.sql("SELECT id % 2 AS partition, id * 250000 AS offset FROM range(6)")
    left = not_taken(rows.withColumn("partition", F.lit(0)), {0: Taken(0, beyond)}).collect()
    assert [row.offset for row in left] == [0, 500_000, 1_250_000]


@pytest.mark.parametrize("every", [3, 200], ids=["a third", "one of two hundred"])
def test_what_a_filter_leaves_scattered_is_left_out_one_by_one(every: int, spark: SparkSession) -> None:
    """Some hundred thousand, as of an interval that was cut off, at an offset as of a topic that is years old."""
    old, count = 10**12, 500_000
    taken = range(old + 10, old + count, every)
    beyond = tuple(range(at, at + 1) for at in taken)
    rows = spark.range(old, old + count + 10).select(
        F.col("id").alias("offset"), (F.col("id") % 2).cast("int").alias("partition")
    )
    left = not_taken(rows, {0: Taken(old, beyond)})
    expected = [at for at in range(old, old + count + 10) if at % 2 or at not in taken]
    assert [row.offset for row in left.select("offset").orderBy("offset").collect()] == expected


def test_a_start_whose_tail_never_ends_ends(
    takeover: Takeover, topics: Topics, monkeypatch: pytest.MonkeyPatch, settings: SparkSettings
) -> None:
    """The end that was noted lies behind the log's, as after an unclean election."""
    topics.send_dispatches("a")
    takeover.commit(0)
    takeover.write(0)
    takeover.end_behind_the_log(monkeypatch)
    stopping = threading.Event()
    threading.Timer(2, stopping.set).start()
    reader = position_reader(settings.kafka.client_config(), takeover.route)
    with closing(reader), pytest.raises(StopRequested):
        takeover.known(reader, [0], stopping)
    monkeypatch.setattr(tail, "_TIMEOUT_SECONDS", 2.0)
    with pytest.raises(ConsumeError, match=r"nothing came of .*/0 up to 2"):
        takeover.taken()


def test_marks_that_the_brokers_do_not_take_are_no_outage(takeover: Takeover, topics: Topics) -> None:
    topics.send_dispatches("a")
    many = Mark({takeover.route.target: tuple(range(10**9, 10**9 + 400)), takeover.route.dead_letters: (0, 0)})
    positions = takeover.real_time()
    positions.find(threading.Event())
    with pytest.raises(PositionsTooLong, match=r"[45]\d{3} bytes.*offset\.metadata\.max\.bytes"):
        positions.commit_interval({0: 0}, many)


def test_marks_that_the_brokers_do_not_take_for_one_partition_are_not_taken_for_committed(
    takeover: Takeover, topics: Topics
) -> None:
    topics.send_dispatches("a")
    topics.send_dispatches("b", partition=1)
    many = Mark({takeover.route.target: tuple(range(10**9, 10**9 + 400)), takeover.route.dead_letters: (0, 0)})
    positions = takeover.real_time()
    positions.find(threading.Event())
    with pytest.raises(PositionsTooLong, match=r"[45]\d{3} bytes.*offset\.metadata\.max\.bytes"):
        positions.commit({0: Taken(0, mark=many), 1: Taken(1, mark=takeover.ends())})


def test_one_that_is_stopped_before_it_found_its_place_leaves_the_group_alone(
    takeover: Takeover, topics: Topics
) -> None:
    topics.send_dispatches(*"ab")
    takeover.commit(0)
    takeover.write(0)
    before = takeover.committed()
    takeover.real_time(epoch=7).leave(10)
    assert takeover.committed() == before
    positions = takeover.real_time(epoch=8)
    positions.find(threading.Event())
    takeover.write(1)
    positions.leave(10)
    assert takeover.position() == 2


def test_one_that_leaves_waits_for_no_tail(takeover: Takeover, topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    topics.send_dispatches("a")
    positions = takeover.real_time()
    positions.find(threading.Event())
    takeover.write(0)
    takeover.end_behind_the_log(monkeypatch)
    begun = time.monotonic()
    with pytest.raises(StopRequested):
        positions.leave(1)
    assert time.monotonic() - begun < 10


def test_a_flood_of_dead_letters_holds_up_no_look(
    takeover: Takeover, topics: Topics, settings: SparkSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail, "_MOST_BATCHES", 1)
    counted = partial(REGISTRY.get_sample_value, "headrace_dead_letters_total", {"query": takeover.route.query})
    with Meter(settings.kafka, takeover.route, {0: 0}, 1.0) as meter:
        takeover.write(*range(3_000), topic=takeover.route.dead_letters)
        seen = [0.0]
        while seen[-1] < 3_000:
            meter.check_dead_letters()
            seen.append(counted() or 0.0)
    assert all(after - before <= 1_000 for before, after in pairwise(seen))


def test_dead_letters_in_a_partition_that_their_topic_gets_are_counted(
    takeover: Takeover, settings: SparkSettings
) -> None:
    letters = takeover.route.dead_letters
    counted = partial(REGISTRY.get_sample_value, "headrace_dead_letters_total", {"query": takeover.route.query})
    with Meter(settings.kafka, takeover.route, {0: 0}, 1.0) as meter:
        takeover.write(0, topic=letters)
        admin = AdminClient({**settings.kafka.client_config()})
        for future in admin.create_partitions([NewPartitions(letters, 3)]).values():
            future.result()
        wait_for("the partition", lambda: len(takeover.ends().ends[letters]) == 3)
        takeover.write(1, 2, topic=letters, into=2)

        def are_counted() -> bool:
            meter.look()
            meter.check_dead_letters()
            return counted() == 3

        wait_for("the dead letters", are_counted, seconds=30)


def made_anew(topics: Topics, settings: SparkSettings, name: str) -> None:
    admin = AdminClient({**settings.kafka.client_config(), "log_level": 0})
    before = topic_id(settings.kafka, name)
    admin.delete_topics([name])[name].result()
    wait_for("the topic to be gone", lambda: topic_id(settings.kafka, name) is None)
    admin.create_topics([NewTopic(name, 2)])[name].result()
    wait_for("another topic", lambda: topic_id(settings.kafka, name) not in (None, before))


def test_a_topic_that_was_made_anew_is_not_taken_for_the_old_one(
    takeover: Takeover, topics: Topics, settings: SparkSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics.send_dispatches(*"abc")
    takeover.commit(0)
    before = topic_id(settings.kafka, takeover.route.source)
    running = takeover.real_time()
    running.find(threading.Event())
    takeover.write(0, 2)
    source = SourceTopic(settings.kafka, takeover.route.source)
    source.expect(before)
    made_anew(topics, settings, takeover.route.source)
    topics.send_dispatches(*"ABCDE")
    with pytest.raises(
        PositionsDisagree, match=f"was made anew while it was read: its id was {re.escape(str(before))}"
    ):
        source.check()
    # The brokers drop a group's offsets with the topic; this interval ends before it is known that there is another.
    running.commit_interval({0: 2, 1: 0}, takeover.ends())
    starts: list[Callable[[], object]] = [
        partial(takeover.real_time().find, threading.Event()),
        takeover.sink,
        partial(
            AtLeastOnceSink(settings.kafka, takeover.route, settings.live).starting_offsets,
            takeover.checkpoint(),
            threading.Event(),
        ),
    ]
    for start in starts:
        with pytest.raises(
            PositionsDisagree,
            match=re.escape(f"/0 was made anew: what was taken in is of the topic with the id {before}"),
        ):
            start()
    go_on = takeover.real_time(epoch=2, on_data_loss="continue")
    assert go_on.find(threading.Event())[0] == Taken(0)
    # And from here on it is the topic.
    assert takeover.real_time(epoch=3).find(threading.Event())[0] == Taken(0)


@pytest.mark.parametrize("place", ["0/9999999999999", "77/0"])
def test_an_id_of_no_record_there_is_hides_no_lag(
    takeover: Takeover, topics: Topics, settings: SparkSettings, place: str
) -> None:
    topics.send_dispatches(*"abc")
    with Meter(settings.kafka, takeover.route, {0: 0}, 1.0) as meter:
        takeover.write_id(f"{takeover.route.source}/{place}")
        meter.look()
    labels = {"query": takeover.route.query, "topic": takeover.route.source, "partition": "0"}
    assert REGISTRY.get_sample_value("headrace_lag_records", labels) == 3


@pytest.mark.parametrize("filters", [False, True])
def test_an_open_transaction_of_another_neither_hides_dead_letters_nor_makes_good_records_seem_missing(
    takeover: Takeover, topics: Topics, settings: SparkSettings, filters: bool
) -> None:
    topics.send_many(1_150)
    own = replace(takeover.route, filters=filters)
    another = ordered(settings.kafka.client_config() | {"transactional.id": f"t-{uuid.uuid4()}"})
    another.init_transactions(30)
    another.begin_transaction()
    for topic in (own.target, own.dead_letters):
        for partition in (0, 1):
            another.produce(topic, b"of another", partition=partition)
    assert another.flush(30) == 0
    labels = {"query": own.query}
    before = REGISTRY.get_sample_value("headrace_dead_letters_total", labels) or 0
    with Meter(settings.kafka, own, {0: 0}, 0.2) as meter:
        takeover.write(*range(1_000))
        takeover.write(*range(1_000, 1_150), topic=own.dead_letters)

        def are_counted() -> bool:
            meter.check_dead_letters()
            return REGISTRY.get_sample_value("headrace_dead_letters_total", labels) == before + 150

        wait_for("the dead letters", are_counted)
    another.abort_transaction(30)


@pytest.mark.parametrize("others", ["good", "bad"])
def test_the_share_of_dead_letters_waits_for_the_records_before_them(
    takeover: Takeover, topics: Topics, settings: SparkSettings, others: str
) -> None:
    """While a target partition takes nothing, good records wait."""
    topics.send_many(1_000)
    bad = [*range(7, 1_000, 8)]
    with (
        Meter(settings.kafka, takeover.route, {0: 0}, 0.2) as meter,
        Follower(settings.kafka, takeover.route, {0: Taken(0)}, meter.ends) as follower,
    ):

        def look_for(seconds: float) -> None:
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                follower.read()
                meter.check_dead_letters(follower.has_reached)

        takeover.write(*bad, topic=takeover.route.dead_letters)
        # Longer than they count.
        look_for(6.0)
        rest = [offset for offset in range(1_000) if offset not in bad]
        if others == "good":
            takeover.write(*rest)
            # Until they are seen, and longer than they count.
            look_for(10.0)
            assert follower.has_reached({0: 1_000})
        else:
            takeover.write(*rest, topic=takeover.route.dead_letters)
            with pytest.raises(SinkRefused, match=r"(\d+) of the last \1 records .* are bad, more than the share"):
                look_for(30.0)


def test_before_records_is_who_stands_before_one_and_not_before_a_marker_or_the_end(
    takeover: Takeover, settings: SparkSettings
) -> None:
    takeover.send_in_transactions(1)
    for position, expected in ((0, {0}), (1, set()), (2, set())):
        taken = {0: Taken(position), 1: Taken(0)}
        with Follower(settings.kafka, takeover.route, taken, takeover.ends()) as follower:
            assert follower.before_records({0: position, 1: 0}) == expected
            assert not follower.before_records({0: position - 1})


def test_a_look_without_all_answers_keeps_those_of_the_source_partitions(
    takeover: Takeover, topics: Topics, settings: SparkSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_away(*_: object) -> Mark:
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    topics.send_dispatches(*"abc")
    with Meter(settings.kafka, takeover.route, {0: 0, 1: 0}, 0.2) as meter:
        meter.look()
        topics.send_dispatches("d")
        monkeypatch.setattr(meter_module, "mark", is_away)
        with pytest.raises(KafkaException):
            meter.look()
        assert meter.source_ends == {0: 4, 1: 0}


def test_at_an_intervals_end_a_position_goes_past_a_marker_with_no_record_behind_it(
    takeover: Takeover, settings: SparkSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(real_time_positions, "_GAP_SECONDS", 20.0)
    takeover.send_in_transactions(1)
    with closing(takeover.real_time()) as positions:
        positions.find(threading.Event())
        positions.commit_interval({0: 1}, takeover.ends())
        assert takeover.position() == 2
        # Retention takes the marker, too: one that stands before it would seem to have lost a record.
        admin = AdminClient({**settings.kafka.client_config()})
        for future in admin.delete_records([TopicPartition(takeover.route.source, 0, 2)]).values():
            future.result()
        positions.commit_interval({0: 1}, takeover.ends())
        assert takeover.position() == 2
        assert positions.find(threading.Event())[0] == Taken(2)


@pytest.mark.parametrize("successor", ["real-time", "exactly-once", "at-least-once"])
def test_one_that_was_cut_off_from_the_store_moves_no_position_of_its_successor(
    takeover: Takeover, topics: Topics, settings: SparkSettings, successor: str
) -> None:
    topics.send_dispatches(*"abcdef")
    takeover.commit(0)
    first = takeover.real_time(epoch=1)
    first.find(threading.Event())
    if successor == "real-time":
        takeover.real_time(epoch=2).find(threading.Event())
    elif successor == "exactly-once":
        takeover.take_over(4, epoch=2)
    else:
        AtLeastOnceSink(settings.kafka, takeover.route, settings.live, epoch=2).take_over(threading.Event())
    before = takeover.position()
    with pytest.raises(
        TakenOver, match=r"has taken .* over \(epoch 2 of the lease, by the offsets of its group; this one has 1"
    ):
        first.commit_interval({0: 2}, takeover.ends())
    with pytest.raises(TakenOver):
        first.find(threading.Event())
    assert takeover.position() == before


def test_a_successor_gives_one_in_real_time_mode_time_to_find_out(
    takeover: Takeover, topics: Topics, settings: SparkSettings
) -> None:
    topics.send_dispatches("a")
    takeover.commit(0)
    stopping = threading.Event()
    stopping.set()
    for start in (
        partial(RealTimePositions(settings, takeover.route, takeover.checkpoint(), 2, 60.0).find, stopping),
        partial(
            ExactlyOnceSink(settings.kafka, takeover.route, settings.live, 3, 60.0).starting_offsets,
            takeover.checkpoint(),
            stopping,
        ),
        partial(AtLeastOnceSink(settings.kafka, takeover.route, settings.live, 4, 60.0).take_over, stopping),
    ):
        with pytest.raises(StopRequested, match="while the last holder of the lease finds out"):
            start()

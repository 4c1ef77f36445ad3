"""Records that real-time mode wrote ahead of its positions, and what the exactly-once sink makes of them."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import structlog
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from prometheus_client import REGISTRY
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from contracts.errors import ConsumeError
from spark.queries.real_time import positions as real_time_positions
from spark.queries.real_time.positions import RealTimePositions
from spark.runtime.errors import PositionsDisagree, PositionsTooLong, SinkRefused, StopRequested, TakenOver
from spark.runtime.settings import SparkSettings
from spark.sinks.kafka import exactly_once, tail
from spark.sinks.kafka.at_least_once import AtLeastOnceSink
from spark.sinks.kafka.exactly_once import ExactlyOnceSink
from spark.sinks.kafka.offset_note import Mark
from spark.sinks.kafka.resume import resume
from spark.sinks.kafka.tail import Known, Taken, not_taken, read_known
from spark.sinks.kafka.transaction import position_reader
from spark.sources.source_topic import SourceTopic, topic_id
from tests.spark.examples import Topics
from tests.spark.live_query import wait_for
from tests.spark.takeover import Takeover


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
    first.take_up(threading.Event())
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
        partial(takeover.real_time().take_up, asked),
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
        first.take_up(asked)

    def slow(*of: Any) -> Known:
        known = read_known(*of)
        monkeypatch.undo()
        successor.take_up(asked)
        takeover.write(0, 1)
        successor.commit_interval({0: 2}, takeover.ends())
        return known

    monkeypatch.setattr(real_time_positions, "read_known", slow)
    with pytest.raises(TakenOver):
        first.take_up(asked)
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
    assert successor.take_up(threading.Event())[0].position == 2
    takeover.write(2, 3)
    with pytest.raises(SinkRefused, match=r"has taken .*/0 over \(epoch 2 of the lease, this one has 1"):
        takeover.batch(sleeper, start, 6)
    assert (takeover.written(), takeover.position()) == ([0, 1, 2, 3], 2)
    assert successor.take_up(threading.Event())[0].position == 4
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
    found = takeover.real_time().take_up(threading.Event())
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
        takeover.real_time().take_up(threading.Event())


def test_with_no_offset_at_all_an_idle_partition_is_forgotten_as_the_others_are(
    takeover: Takeover, topics: Topics
) -> None:
    topics.send_dispatches(*"abc")
    takeover.write(0, 1, 2, partition=1)
    with pytest.raises(PositionsDisagree, match="/0: the consumer group has no offset, but the target topic has"):
        takeover.real_time().take_up(threading.Event())


def test_an_intervals_commit_keeps_the_mark_of_what_was_written_ahead(takeover: Takeover, topics: Topics) -> None:
    topics.send_dispatches(*"abcdef")
    takeover.commit(0)
    takeover.write(0, 1, 4)
    first = takeover.real_time()
    assert first.take_up(threading.Event())[0].beyond == (range(4, 5),)
    takeover.write(2)
    first.commit_interval({0: 3}, takeover.ends())
    second = takeover.real_time(epoch=2)
    assert second.take_up(threading.Event())[0] == Taken(3, (range(4, 5),), second.take_up(threading.Event())[0].mark)
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


def test_a_partition_that_was_set_back_is_taken_again_though_anothers_mark_is_older(
    takeover: Takeover, topics: Topics
) -> None:
    for partition in (0, 1):
        topics.send_dispatches(*"abc", partition=partition)
    takeover.commit(0)
    takeover.write(0, 2)
    takeover.write(0, 1, 2, partition=1)
    takeover.commit(0, partition=1)
    takeover.write(2, partition=1)
    found = takeover.real_time().take_up(threading.Event())
    assert (found[0].position, found[0].beyond) == (1, (range(2, 3),))
    assert (found[1].position, found[1].beyond) == (0, (range(2, 3),))


def test_what_lies_in_a_topic_that_the_pipeline_writes_no_more_says_nothing_of_a_partition_that_was_set_back_since(
    takeover: Takeover, topics: Topics
) -> None:
    for partition in (0, 1):
        topics.send_dispatches(*"abc", partition=partition)
    takeover.commit(0)
    takeover.write(0)
    takeover.write(0, 1, partition=1)
    takeover.route = replace(takeover.route, target=topics.enriched.dead_letter_topic)
    takeover.commit(0, partition=1)
    found = takeover.real_time().take_up(threading.Event())
    assert (found[0].position, found[1].position) == (1, 0)


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
    takeover.write(0, 2)
    takeover.commit(0, partition=1)
    first = takeover.real_time()
    first.commit_interval({0: 0}, Mark({takeover.route.target: (5, 0), takeover.route.dead_letters: (0, 0)}))
    with pytest.raises(PositionsDisagree, match=r"/0 ends at 2, before the mark .* 5: .*ON_DATA_LOSS=continue"):
        takeover.real_time().take_up(threading.Event())
    found = takeover.real_time(on_data_loss="continue").take_up(threading.Event())[0]
    assert (found.position, found.beyond) == (1, (range(2, 3),))
    # The next one reads it from its beginning.
    assert takeover.real_time().take_up(threading.Event())[0] == found


def test_going_on_after_a_loss_repeats_nothing_that_was_written_ahead(
    takeover: Takeover, topics: Topics, settings: SparkSettings
) -> None:
    topics.send_dispatches(*"abcdef")
    takeover.commit(0)
    takeover.write(0, 3, 5)
    delete(settings, takeover.route.source, before=3)
    positions = takeover.real_time(on_data_loss="continue")
    found = positions.take_up(threading.Event())[0]
    assert found == Taken(4, (range(5, 6),), found.mark)
    assert positions.take_up(threading.Event())[0] == found


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
    positions.take_up(threading.Event())
    with pytest.raises(PositionsTooLong, match=r"[45]\d{3} bytes.*offset\.metadata\.max\.bytes"):
        positions.commit_interval({0: 0}, many)


def test_marks_that_the_brokers_do_not_take_for_one_partition_are_not_taken_for_committed(
    takeover: Takeover, topics: Topics
) -> None:
    topics.send_dispatches("a")
    topics.send_dispatches("b", partition=1)
    many = Mark({takeover.route.target: tuple(range(10**9, 10**9 + 400)), takeover.route.dead_letters: (0, 0)})
    positions = takeover.real_time()
    positions.take_up(threading.Event())
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
    positions.take_up(threading.Event())
    takeover.write(1)
    positions.leave(10)
    assert takeover.position() == 2


def test_one_that_leaves_waits_for_no_tail(takeover: Takeover, topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    topics.send_dispatches("a")
    positions = takeover.real_time()
    positions.take_up(threading.Event())
    takeover.write(0)
    takeover.end_behind_the_log(monkeypatch)
    begun = time.monotonic()
    with pytest.raises(StopRequested):
        positions.leave(1)
    assert time.monotonic() - begun < 10


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
    running.take_up(threading.Event())
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
        partial(takeover.real_time().take_up, threading.Event()),
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
    assert go_on.take_up(threading.Event())[0] == Taken(0)
    # And from here on it is the topic.
    assert takeover.real_time(epoch=3).take_up(threading.Event())[0] == Taken(0)


def test_at_an_intervals_end_a_position_goes_past_a_marker_with_no_record_behind_it(
    takeover: Takeover, settings: SparkSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(real_time_positions, "_GAP_SECONDS", 20.0)
    takeover.send_in_transactions(1)
    with closing(takeover.real_time()) as positions:
        positions.take_up(threading.Event())
        positions.commit_interval({0: 1}, takeover.ends())
        assert takeover.position() == 2
        # Retention takes the marker, too: one that stands before it would seem to have lost a record.
        delete(settings, takeover.route.source, before=2)
        positions.commit_interval({0: 1}, takeover.ends())
        assert takeover.position() == 2
        assert positions.take_up(threading.Event())[0] == Taken(2)


def test_a_start_goes_past_a_marker_with_no_record_behind_it(
    takeover: Takeover, settings: SparkSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(real_time_positions, "_GAP_SECONDS", 20.0)
    takeover.send_in_transactions(1)
    takeover.commit(0)
    takeover.write(0)
    with closing(takeover.real_time()) as positions:
        assert positions.take_up(threading.Event())[0] == Taken(2)
        assert takeover.position() == 2
        # Retention takes the marker, too.
        delete(settings, takeover.route.source, before=2)
        assert positions.take_up(threading.Event())[0] == Taken(2)


@pytest.mark.parametrize("successor", ["real-time", "exactly-once", "at-least-once"])
def test_one_that_was_cut_off_from_the_store_moves_no_position_of_its_successor(
    takeover: Takeover, topics: Topics, settings: SparkSettings, successor: str
) -> None:
    topics.send_dispatches(*"abcdef")
    takeover.commit(0)
    first = takeover.real_time(epoch=1)
    first.take_up(threading.Event())
    if successor == "real-time":
        takeover.real_time(epoch=2).take_up(threading.Event())
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
        first.take_up(threading.Event())
    assert takeover.position() == before


def test_a_successor_gives_one_in_real_time_mode_time_to_find_out(
    takeover: Takeover, topics: Topics, settings: SparkSettings
) -> None:
    topics.send_dispatches("a")
    takeover.commit(0)
    stopping = threading.Event()
    stopping.set()
    for start in (
        partial(RealTimePositions(settings, takeover.route, takeover.checkpoint(), 2, 60.0).take_up, stopping),
        partial(
            ExactlyOnceSink(settings.kafka, takeover.route, settings.live, 3, 60.0).starting_offsets,
            takeover.checkpoint(),
            stopping,
        ),
        partial(AtLeastOnceSink(settings.kafka, takeover.route, settings.live, 4, 60.0).take_over, stopping),
    ):
        with pytest.raises(StopRequested, match="while the last holder of the lease finds out"):
            start()

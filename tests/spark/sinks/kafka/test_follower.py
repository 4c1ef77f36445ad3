"""What a query in real-time mode commits by what it has written, and what its successor makes of it, on a real broker."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing

import pytest
import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from prometheus_client import REGISTRY

from contracts.settings import KafkaSettings
from spark.runtime.settings import SparkSettings
from spark.sinks.kafka import follower as follower_module
from spark.sinks.kafka.follower import Follower
from spark.sinks.kafka.offset_note import Mark
from spark.sinks.kafka.sink import Route
from spark.sinks.kafka.tail import Taken, positions_of
from spark.sinks.kafka.transaction import position_reader
from tests.administered import add_partitions
from tests.producers import ordered
from tests.spark.examples import Topics
from tests.spark.live_query import wait_for
from tests.spark.real_time_query import ends_without
from tests.spark.sinks.kafka.test_tail import delete
from tests.spark.takeover import Takeover

_RECORDS = 60
_PARTITIONS = (0, 1)


class Writing:
    """A query that writes its records nearly in their order, each partition's by itself, some of them as dead letters."""

    def __init__(self, chance: random.Random, takeover: Takeover) -> None:
        self._chance, self._takeover = chance, takeover
        self._left = {p: sorted(range(_RECORDS), key=lambda at: at + chance.uniform(0, 6)) for p in _PARTITIONS}
        self.written: dict[int, set[int]] = {p: set() for p in _PARTITIONS}

    def go_on(self) -> None:
        """By up to eight records of each partition."""
        for partition, left in self._left.items():
            for _ in range(self._chance.randrange(9)):
                if left:
                    topic = self._takeover.route.dead_letters if self._chance.random() < 0.2 else None
                    self._takeover.write(left[0], topic=topic, partition=partition)
                    self.written[partition].add(left.pop(0))

    def truth(self) -> dict[int, tuple[int, set[int]]]:
        """Of each partition the first record that is missing, and those beyond it."""
        first = {p: next(at for at in range(_RECORDS + 1) if at not in there) for p, there in self.written.items()}
        return {p: (first[p], {at for at in there if at > first[p]}) for p, there in self.written.items()}


@pytest.fixture
def follower(takeover: Takeover, settings: SparkSettings, topics: Topics) -> Iterator[Follower]:
    with Follower(settings.kafka, takeover.route, {p: Taken(0) for p in _PARTITIONS}, takeover.ends()) as follower:
        yield follower


def _known(takeover: Takeover, settings: SparkSettings) -> dict[int, tuple[int, set[int]]]:
    with closing(position_reader(settings.kafka.client_config(), takeover.route)) as reader:
        known = takeover.known(reader, _PARTITIONS, threading.Event())
    return {
        partition: (each.position, {at for run in each.beyond for at in run}) for partition, each in known.taken.items()
    }


def _positions(follower: Follower) -> dict[int, int]:
    follower.read()
    return positions_of(follower.to_commit())


def _read_all(takeover: Takeover, follower: Follower) -> None:
    def is_read() -> bool:
        follower.read()
        return follower.behind(takeover.ends()) == 0

    wait_for("all to be read", is_read)


@pytest.mark.parametrize("seed", [0, *(pytest.param(each, marks=pytest.mark.long) for each in (1, 2, 3))])
def test_at_any_moment_what_is_committed_leads_to_all_that_was_written(
    takeover: Takeover, topics: Topics, settings: SparkSettings, seed: int
) -> None:
    chance = random.Random(seed)
    for partition in _PARTITIONS:
        topics.send_dispatches(*map(str, range(_RECORDS)), partition=partition)
    writing = Writing(chance, takeover)
    positions = takeover.real_time()
    for _ in range(3):
        # As each start of a query: what is known from what was committed before.
        taken = positions.take_up(threading.Event())
        assert {
            p: (each.position, {at for run in each.beyond for at in run}) for p, each in taken.items()
        } == writing.truth()
        with Follower(settings.kafka, takeover.route, taken, takeover.ends()) as follower:
            for _ in range(4):
                writing.go_on()
                if chance.random() < 0.7:
                    follower.read()
                if chance.random() < 0.5:
                    positions.commit(follower.to_commit())
            wait_for("the follower to have seen all", lambda: _positions(follower) == _first(writing.truth()))
            positions.commit(follower.to_commit())
            # Killed here, with more written than it has committed.
            writing.go_on()
        assert _known(takeover, settings) == writing.truth()
    positions.close()


def _first(truth: Mapping[int, tuple[int, set[int]]]) -> dict[int, int]:
    return {partition: position for partition, (position, _) in truth.items()}


def test_a_mark_does_not_stay_behind(takeover: Takeover, topics: Topics, follower: Follower) -> None:
    topics.send_dispatches(*"abcdef")
    takeover.write(0, 2, 3)
    wait_for("the first", lambda: _positions(follower)[0] == 1)
    before = follower.to_commit()[0].mark
    takeover.write(1, 4)
    wait_for("all", lambda: _positions(follower)[0] == 5)
    after = follower.to_commit()[0].mark
    assert before is not None
    assert sum(before.ends[takeover.route.target]) == 0
    assert after == takeover.ends()


def test_it_tells_what_is_written_up_to_an_offset_and_up_to_the_end(
    takeover: Takeover, topics: Topics, follower: Follower
) -> None:
    topics.send_dispatches("a", "b")
    takeover.write(0)
    _read_all(takeover, follower)
    assert follower.has_written({0: 1, 1: 0})
    assert not follower.has_written({0: 2})
    # Of partition 0 a record is missing; 1 never had one.
    assert follower.written_to_the_end([0, 1]) == {1: 0}
    takeover.write(1)
    takeover.send_in_transactions(1, partition=1)
    takeover.write(0, partition=1)
    _read_all(takeover, follower)
    assert follower.has_written({0: 2, 1: 1})
    assert follower.written_to_the_end([0]) == {0: 2}
    # Behind the last record of this one there is a marker.
    assert not follower.has_written({1: 2})
    wait_for("the marker to be passed", lambda: follower.written_to_the_end([1]) == {1: 2})
    assert follower.has_written({1: 2})


def test_markers_of_transactions_and_ids_that_were_made_up_hold_nothing_up(
    takeover: Takeover, topics: Topics, settings: SparkSettings, follower: Follower
) -> None:
    takeover.send_in_transactions(3)
    takeover.write(0, 2, 1_000_000)
    takeover.write(3, partition=77)
    wait_for("the gap to be passed", lambda: _positions(follower) == {0: 4, 1: 0})
    takeover.write(4)
    wait_for("the topic's end", lambda: _positions(follower) == {0: 6, 1: 0})
    assert follower.to_commit()[0].mark == takeover.ends()


def test_a_marker_at_the_end_of_a_target_topic_is_passed_too(
    takeover: Takeover, settings: SparkSettings, follower: Follower
) -> None:
    producer = ordered({**settings.kafka.client_config(), "transactional.id": takeover.route.target})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(takeover.route.target, b"of somebody else", partition=0)
    producer.commit_transaction(30)
    _read_all(takeover, follower)
    assert follower.to_commit()[0].mark == takeover.ends()


@pytest.mark.parametrize(("count", "size"), [(30, 1), (3, 2_000)])
def test_the_markers_of_many_transactions_are_passed_at_once(
    takeover: Takeover, follower: Follower, count: int, size: int
) -> None:
    end = count * (size + 1)
    for partition in _PARTITIONS:
        takeover.send_in_transactions(count, partition, size)
        takeover.write(*(at for at in range(end) if (at + 1) % (size + 1)), partition=partition)
    _read_all(takeover, follower)
    follower.to_commit()
    assert positions_of(follower.to_commit()) == dict.fromkeys(_PARTITIONS, end)


def test_partitions_that_topics_get_are_followed(
    takeover: Takeover, topics: Topics, settings: SparkSettings, follower: Follower
) -> None:
    admin = AdminClient({**settings.kafka.client_config()})
    route: Route = takeover.route
    topics.send_dispatches(*"abc")
    for topic in (route.target, route.source):
        add_partitions(admin, topic, 3)
    producer = ordered(settings.kafka.client_config())
    for raw in (0, 2):
        producer.produce(route.source, b"raw", partition=2)
        headers: list[tuple[str, str | bytes | None]] = [
            ("ce_id", f"{route.source}/{raw}/0"),
            ("ce_source", route.ce_source),
        ]
        producer.produce(route.target, b"written", partition=2, headers=headers)
    assert producer.flush(30) == 0
    wait_for("both", lambda: _positions(follower) == {0: 1, 1: 0, 2: 1})
    follower.move_to({0: 3, 1: 0, 2: 1}, takeover.ends())
    assert _positions(follower) == {0: 3, 1: 0, 2: 1}


def test_an_id_at_the_raw_topics_end_is_made_up(takeover: Takeover, topics: Topics, follower: Follower) -> None:
    topics.send_dispatches(*"abc")
    takeover.write(0, 1, 2, 3, 4)
    takeover.write(0, partition=1)
    _read_all(takeover, follower)
    assert _positions(follower) == {0: 3, 1: 0}
    topics.send_dispatches("d")
    assert _positions(follower) == {0: 3, 1: 0}
    takeover.write(3)
    wait_for("the real one", lambda: _positions(follower) == {0: 4, 1: 0})
    assert follower.to_commit()[0].mark == takeover.ends()


def test_what_lies_before_an_intervals_end_need_not_be_read(
    takeover: Takeover, topics: Topics, settings: SparkSettings, follower: Follower
) -> None:
    topics.send_dispatches(*"abcdefgh")
    positions = takeover.real_time()
    positions.take_up(threading.Event())
    takeover.write(0, 1, 2, 3)
    before = takeover.ends()
    takeover.write(5)
    follower.move_to({0: 4, 1: 0}, before)
    assert follower.to_commit()[0] == Taken(4, mark=before)
    takeover.write(4)
    wait_for("what came since", lambda: _positions(follower)[0] == 6)
    positions.commit(follower.to_commit())
    positions.close()
    takeover.write(7)
    assert _known(takeover, settings)[0] == (6, {7})


def test_what_was_purged_before_it_was_read_is_told_and_counted(
    takeover: Takeover, topics: Topics, settings: SparkSettings
) -> None:
    topics.send_dispatches(*"abcdefg")
    begun = takeover.ends()
    takeover.write(0, 2, 4, 6)
    delete(settings, takeover.route.target, before=3)
    with Follower(settings.kafka, takeover.route, {p: Taken(0) for p in _PARTITIONS}, begun) as follower:
        with structlog.testing.capture_logs() as logs:
            wait_for("the rest", lambda: bool(_positions(follower)) and follower.behind(takeover.ends()) == 0)
        (told,) = [line for line in logs if line["log_level"] == "error"]
        assert (told["topic"], told["partition"], told["first"], told["up_to"]) == (takeover.route.target, 0, 0, 3)
        takeover.write(1, 3)
        before = takeover.ends()
        takeover.write(5)
        follower.move_to({0: 5, 1: 0}, before)
        wait_for("what came since", lambda: _positions(follower)[0] == 7)


def test_errors_are_counted_and_each_kind_is_told_once() -> None:
    route = Route("q-nowhere", "raw", "target", "raw.dlq")
    labels = {"query": route.query, "error": "_TRANSPORT"}
    with (
        structlog.testing.capture_logs() as logs,
        Follower(KafkaSettings(bootstrap_servers="127.0.0.1:1"), route, {0: Taken(0)}, Mark({})) as follower,
    ):

        def errors() -> float:
            follower.read()
            return REGISTRY.get_sample_value("headrace_follower_errors_total", labels) or 0

        wait_for("two errors", lambda: errors() >= 2)
    assert len([line for line in logs if "_TRANSPORT" in line["error"]]) == 1


def test_before_records_is_who_stands_before_one_and_not_before_a_marker_or_the_end(
    takeover: Takeover, settings: SparkSettings
) -> None:
    takeover.send_in_transactions(1)
    for position, expected in ((0, {0}), (1, set()), (2, set())):
        taken = {0: Taken(position), 1: Taken(0)}
        with Follower(settings.kafka, takeover.route, taken, takeover.ends()) as follower:
            assert follower.before_records({0: position, 1: 0}) == expected
            assert not follower.before_records({0: position - 1})


def test_a_target_partition_that_is_away_before_it_is_known_what_is_gone_holds_up_no_position(
    takeover: Takeover, topics: Topics, settings: SparkSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, int]] = []

    def are_away(_: Consumer, places: Iterable[tuple[str, int]], __: float) -> tuple[object, object]:
        asked.extend(places)
        return {}, dict.fromkeys(asked, KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE)))

    topics.send_dispatches(*"abcd")
    begun = takeover.ends()
    takeover.write(1, 2, into=0)
    delete(settings, takeover.route.target, before=1)
    with Follower(settings.kafka, takeover.route, {p: Taken(0) for p in _PARTITIONS}, begun) as follower:
        with monkeypatch.context() as patch:
            patch.setattr(follower_module, "watermarks_of", are_away)
            wait_for("the gap", lambda: bool(_positions(follower)) and bool(asked))
            takeover.write(0, topic=takeover.route.dead_letters)
            wait_for("the position", lambda: _positions(follower)[0] == 1)
        wait_for("what is left", lambda: _positions(follower)[0] == 1 and follower.behind(takeover.ends()) == 0)
        takeover.write(1)
        wait_for("the others", lambda: _positions(follower)[0] == 3)


def test_before_records_is_who_stands_before_what_is_gone(
    takeover: Takeover, topics: Topics, settings: SparkSettings
) -> None:
    topics.send_dispatches(*"abc")
    delete(settings, takeover.route.source, before=2)
    with Follower(settings.kafka, takeover.route, {0: Taken(0), 1: Taken(0)}, takeover.ends()) as follower:
        assert follower.before_records({0: 0, 1: 0}) == {0}


def test_a_source_partition_that_is_away_holds_up_no_other_ones_position(
    takeover: Takeover, topics: Topics, settings: SparkSettings, follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    for partition in _PARTITIONS:
        topics.send_dispatches(*"abc", partition=partition)
    begun = takeover.ends()
    with monkeypatch.context() as patch:
        patch.setattr(follower_module, "ends_of", ends_without(1))
        for partition in _PARTITIONS:
            takeover.write(0, 2, partition=partition)
        _read_all(takeover, follower)
        assert follower.to_commit().keys() == {0}
        takeover.write(1)
        wait_for("the others", lambda: _positions(follower) == {0: 3})
        assert follower.written_to_the_end(_PARTITIONS) == {0: 3}
        patch.setattr(follower_module, "ends_of", ends_without(0, 1))
        takeover.write(3)
        topics.send_dispatches("d")
        _read_all(takeover, follower)
        with pytest.raises(KafkaException):
            follower.to_commit()
    wait_for("both", lambda: _positions(follower) == {0: 4, 1: 1})
    # What lies beyond the position is to be found again.
    found = follower.to_commit()[1].mark
    assert found is not None and sum(found.ends[takeover.route.target]) <= sum(begun.ends[takeover.route.target])

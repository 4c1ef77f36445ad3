"""Lag and dead letters of a query in real-time mode, as they are read from the topics."""

from __future__ import annotations

import time
import uuid
from dataclasses import replace
from functools import partial
from itertools import pairwise

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from prometheus_client import REGISTRY

from spark.queries.real_time import meter as meter_module
from spark.queries.real_time.meter import Meter
from spark.runtime.errors import SinkRefused
from spark.runtime.settings import SparkSettings
from spark.sinks.kafka import tail
from spark.sinks.kafka.follower import Follower
from spark.sinks.kafka.tail import Taken
from tests.administered import add_partitions
from tests.producers import ordered
from tests.spark.examples import Topics
from tests.spark.live_query import wait_for
from tests.spark.real_time_query import is_away
from tests.spark.takeover import Takeover


def test_a_flood_of_dead_letters_holds_up_no_look(
    takeover: Takeover, settings: SparkSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail, "_MOST_BATCHES", 1)
    counted = partial(REGISTRY.get_sample_value, "headrace_dead_letters_total", {"query": takeover.route.query})
    with Meter(settings.kafka, takeover.route, {0: 0}, 1.0) as meter:
        takeover.write(*range(3_000), topic=takeover.route.dead_letters)
        seen = [0.0]

        def are_all_counted() -> bool:
            meter.check_dead_letters()
            seen.append(counted() or 0.0)
            return seen[-1] >= 3_000

        wait_for("the dead letters", are_all_counted, every=0.0)
    assert all(after - before <= 1_000 for before, after in pairwise(seen))


def test_dead_letters_in_a_partition_that_their_topic_gets_are_counted(
    takeover: Takeover, settings: SparkSettings
) -> None:
    letters = takeover.route.dead_letters
    counted = partial(REGISTRY.get_sample_value, "headrace_dead_letters_total", {"query": takeover.route.query})
    with Meter(settings.kafka, takeover.route, {0: 0}, 1.0) as meter:
        takeover.write(0, topic=letters)
        add_partitions(AdminClient({**settings.kafka.client_config()}), letters, 3)
        takeover.write(1, 2, topic=letters, into=2)

        def are_counted() -> bool:
            meter.look()
            meter.check_dead_letters()
            return counted() == 3

        wait_for("the dead letters", are_counted, seconds=30)


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
    takeover: Takeover, topics: Topics, settings: SparkSettings, monkeypatch: pytest.MonkeyPatch, others: str
) -> None:
    """While a target partition takes nothing, good records wait."""
    monkeypatch.setattr(meter_module, "_WINDOW_SECONDS", 1.0)
    topics.send_many(1_000)
    bad = [*range(7, 1_000, 8)]
    with (
        Meter(settings.kafka, takeover.route, {0: 0}, 0.2) as meter,
        Follower(settings.kafka, takeover.route, {0: Taken(0)}, meter.ends) as follower,
    ):

        def look() -> bool:
            follower.read()
            meter.check_dead_letters(follower.has_written)
            return follower.has_written({0: 1_000})

        def look_for(seconds: float) -> None:
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                look()

        takeover.write(*bad, topic=takeover.route.dead_letters)
        # Longer than they count.
        look_for(2.0)
        rest = [offset for offset in range(1_000) if offset not in bad]
        if others == "good":
            takeover.write(*rest)
            wait_for("the good ones", look)
            look_for(2.0)
        else:
            takeover.write(*rest, topic=takeover.route.dead_letters)
            with pytest.raises(SinkRefused, match=r"(\d+) of the last \1 records .* are bad, more than the share"):
                look_for(240.0)


def test_a_look_without_all_answers_keeps_those_of_the_source_partitions(
    takeover: Takeover, topics: Topics, settings: SparkSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics.send_dispatches(*"abc")
    with Meter(settings.kafka, takeover.route, {0: 0, 1: 0}, 0.2) as meter:
        meter.look()
        topics.send_dispatches("d")
        monkeypatch.setattr(meter_module, "mark", is_away)
        with pytest.raises(KafkaException):
            meter.look()
        assert meter.source_ends == {0: 4, 1: 0}
        labels = {"query": takeover.route.query, "topic": takeover.route.source, "partition": "0"}
        assert REGISTRY.get_sample_value("headrace_lag_records", labels) == 4


def test_a_look_without_a_source_partition_tells_of_the_others(
    takeover: Takeover, topics: Topics, settings: SparkSettings
) -> None:
    topics.send_dispatches(*"abc", partition=1)
    # There is no partition 7.
    with Meter(settings.kafka, takeover.route, {7: 0, 1: 0}, 0.2) as meter:
        takeover.write(0, partition=1)
        with pytest.raises(KafkaException):
            meter.look()
        assert meter.source_ends == {1: 3}
        assert sum(meter.ends.ends[takeover.route.target]) == 1
    labels = {"query": takeover.route.query, "topic": takeover.route.source, "partition": "1"}
    assert REGISTRY.get_sample_value("headrace_lag_records", labels) == 2

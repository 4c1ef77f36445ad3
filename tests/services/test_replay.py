"""The replaying services against a real broker and registry: in step, in order, once, whatever happens to them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, cast

import pytest
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient

from contracts import topics
from contracts.dead_letters.purge import plan_purge, purge
from contracts.dead_letters.topic import DeadLetterTopic
from contracts.definitions.catalog import load_catalog
from contracts.events import ReplayStarted
from contracts.records.codec import Codec
from contracts.servers.provision import create_topics
from contracts.servers.registry import Registry
from deploy.local.servers.stack import LocalStack
from services.arrivals.event import event_of as arrival_of
from services.arrivals.event import timezones
from services.departures.event import events_of as departures_of
from services.nycflights.tables import read_table
from services.replay.clock import ReplayClock
from services.replay.timeline import Timeline
from services.weather.event import event_id as weather_id
from services.weather.event import event_of as weather_of
from tests.administered import add_partitions
from tests.producers import ordered

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]
ROOT = Path(__file__).parent.parent.parent
CATALOG = load_catalog()
AT_ONCE = "1e9"
"""A speed at which everything is due at once."""


@dataclass(frozen=True)
class Sent:
    """A record as it lies in Kafka."""

    topic: str
    partition: int
    id: str
    occurred_at: datetime
    sent_at: datetime


class Airport:
    """The services as processes, beside a broker whose topics are empty at first."""

    def __init__(self, stack: LocalStack, logs: Path) -> None:
        self.stack, self.logs = stack, logs
        self.kafka: dict[str, Any] = dict(stack.settings().kafka.client_config())
        self.admin = AdminClient(self.kafka)

    def empty_topics(self) -> None:
        names = [name for topic in CATALOG.topics.values() for name in (topic.name, topic.dead_letter_topic)]
        there = set(self.admin.list_topics(timeout=30).topics)
        for future in self.admin.delete_topics([name for name in names if name in there]).values():
            future.result()
        wait_for("the topics to be gone", lambda: not there & set(names) & set(self.admin.list_topics().topics))
        create_topics(self.stack.settings(), CATALOG)

    def set_clock(self, *, speed: str = AT_ONCE, from_at: str | None = None, until: str | None = None) -> None:
        arguments = ["--speed", speed, "--data-start", "2013-01-01T05:00Z"]
        arguments += [] if from_at is None else ["--from", from_at]
        arguments += [] if until is None else ["--until", until]
        with self.running("replay", *arguments) as clock:
            assert clock.wait(120) == 0

    def clocks(self) -> list[ReplayClock]:
        with Registry(self.stack.settings().registry) as registry:
            decode = Codec(registry.by_id).decode
            values = [value for _, value in self._records(topics.REPLAY_STARTED.name)]
            return [ReplayClock.of(ReplayStarted.model_validate(decode(value))) for value in values]

    @contextmanager
    def running(self, service: str, *arguments: str, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
        with (self.logs / f"{service}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", f"services.{service}", *arguments],
                cwd=ROOT,
                env={**os.environ, **self.stack.settings_env(), **environment},
                stderr=log,
            )
            try:
                yield process
            finally:
                process.kill()
                process.wait()

    def run(self, service: str, **environment: str) -> None:
        with self.running(service, **environment) as process:
            assert process.wait(240) == 0, self.log(service)

    def log(self, service: str) -> str:
        return (self.logs / f"{service}.log").read_text()

    def sent(self, *names: str) -> list[Sent]:
        return [sent for name in names for sent, _ in self._records(name)]

    def count(self, *names: str) -> int:
        """How many records were ever sent to topics."""
        consumer = Consumer(self.kafka | {"group.id": "count"})
        try:
            return sum(
                consumer.get_watermark_offsets(TopicPartition(name, partition), timeout=30)[1]
                for name in names
                for partition in consumer.list_topics(name, timeout=30).topics[name].partitions
            )
        finally:
            consumer.close()

    def _records(self, name: str) -> Iterator[tuple[Sent, bytes]]:
        consumer = Consumer(self.kafka | {"group.id": "reader", "enable.partition.eof": True})
        partitions = consumer.list_topics(name, timeout=30).topics[name].partitions
        consumer.assign([TopicPartition(name, partition, OFFSET_BEGINNING) for partition in partitions])
        unread = set(partitions)
        try:
            while unread:
                message = consumer.poll(30)
                assert message is not None, f"nothing came from {name}"
                error = message.error()
                if error is not None:
                    assert error.code() == KafkaError._PARTITION_EOF
                    unread.discard(cast(int, message.partition()))
                    continue
                headers = dict(cast("list[tuple[str, bytes]]", message.headers()))
                identity = headers.get("ce_causationid") or headers["ce_id"]
                occurred_at = headers.get("ce_time", b"1970-01-01T00:00Z").decode()
                sent_at = datetime.fromtimestamp(message.timestamp()[1] / 1000, UTC)
                partition = cast(int, message.partition())
                yield (
                    Sent(name, partition, identity.decode(), datetime.fromisoformat(occurred_at), sent_at),
                    message.value() or b"",
                )
        finally:
            consumer.close()


def wait_for(what: str, holds: Callable[[], object], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"waited {seconds} s for {what}"
        time.sleep(0.02)


@pytest.fixture(scope="module")
def module_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStack]:
    """A stack of these tests' own: they empty its topics."""
    with LocalStack(tmp_path_factory.mktemp("replay")) as running:
        running.bootstrap()
        yield running


@pytest.fixture
def airport(module_stack: LocalStack, tmp_path: Path) -> Airport:
    airport = Airport(module_stack, tmp_path)
    airport.empty_topics()
    return airport


def timeline(service: str) -> Timeline:
    flight_id = attrgetter("flight_id")
    match service:
        case "departures":
            streams: Sequence[Any] = (topics.FLIGHTS_DEPARTED, topics.FLIGHTS_CANCELLED, topics.GATES_ANNOUNCED)
            return Timeline(read_table("flights"), departures_of, flight_id, streams, CATALOG)
        case "arrivals":
            convert = partial(arrival_of, zones=timezones(read_table("airports")))
            return Timeline(read_table("flights"), convert, flight_id, (topics.FLIGHTS_ARRIVED,), CATALOG)
        case _:
            return Timeline(read_table("weather"), weather_of, weather_id, (topics.WEATHER_OBSERVED,), CATALOG)


def expected(service: str, until: datetime) -> Counter[tuple[str, str]]:
    """Topic and id of everything that a service sends up to an event time."""
    found: Counter[tuple[str, str]] = Counter()
    for entry in timeline(service).entries():
        if entry.position.occurred_at > until:
            break
        found[entry.stream, entry.id] += 1
    return found


def in_order(sent: Sequence[Sent]) -> bool:
    """Whether every partition has its records in event-time order; dead letters carry no event time."""
    times: dict[tuple[str, int], datetime] = {}
    for record in sent:
        place = (record.topic, record.partition)
        if record.occurred_at < times.get(place, record.occurred_at):
            return False
        times[place] = record.occurred_at
    return True


def send_foreign_record(airport: Airport, topic: str) -> None:
    producer = ordered(airport.kafka)
    headers: list[tuple[str, str | bytes | None]] = [
        ("ce_id", b"theirs"),
        ("ce_source", b"/services/another-team"),
        ("ce_time", b"2030-01-01T00:00:00Z"),
        ("ce_sequence", b"001900000000000-000000001"),
    ]
    for partition in range(2):
        producer.produce(topic, b"theirs", headers=headers, partition=partition)
    producer.flush(30)


@pytest.mark.parametrize(
    "service", ["departures", *(pytest.param(each, marks=pytest.mark.long) for each in ("arrivals", "weather"))]
)
def test_a_killed_service_goes_on_without_loss_or_double(airport: Airport, service: str) -> None:
    streams = timeline(service).streams
    # Some twenty thousand records, so that a kill finds the service at work.
    until = datetime(2013, 12, 1, tzinfo=UTC) if service == "weather" else datetime(2013, 1, 25, tzinfo=UTC)
    everything = expected(service, until)
    airport.set_clock(until=until.isoformat())

    for kill in (1, 2):
        before = airport.count(*streams)
        with airport.running(service) as process:
            wait_for(f"kill {kill}", partial(_has_more_than, airport, streams, before + 100))
            process.send_signal(signal.SIGKILL)
            process.wait()
        send_foreign_record(airport, streams[0])
    assert airport.count(*streams) < sum(everything.values())
    airport.run(service)
    airport.run(service)  # and one that finds everything done

    sent = [record for record in airport.sent(*streams) if record.id != "theirs"]
    assert Counter((record.topic, record.id) for record in sent) == everything
    assert in_order(sent)


def _has_more_than(airport: Airport, streams: Sequence[str], count: int) -> bool:
    return airport.count(*streams) > count


def test_a_topic_that_got_more_partitions_meanwhile_is_resumed_as_exactly(airport: Airport) -> None:
    until = datetime(2013, 1, 3, tzinfo=UTC)
    airport.set_clock(until=until.isoformat())
    airport.run("departures", HEADRACE_LIMIT="700")
    add_partitions(airport.admin, topics.FLIGHTS_DEPARTED.name, 5)

    airport.run("departures", HEADRACE_LIMIT="7")
    airport.run("departures")

    sent = airport.sent(topics.FLIGHTS_DEPARTED.name, topics.FLIGHTS_CANCELLED.name, topics.GATES_ANNOUNCED.name)
    assert Counter((record.topic, record.id) for record in sent) == expected("departures", until)


def test_dead_letters_that_were_purged_are_not_published_again(airport: Airport) -> None:
    events, dead_letters = timeline("arrivals").streams
    airport.set_clock(until="2013-01-05T00:00Z")
    airport.run("arrivals")
    letters = airport.count(dead_letters)
    settings = airport.stack.settings()
    with Registry(settings.registry) as registry:
        topic = DeadLetterTopic(settings.kafka, CATALOG, registry, events)
        assert purge(topic, plan_purge(topic, lambda letter: True)) == letters > 10

    airport.set_clock(until="2013-01-06T00:00Z")
    airport.run("arrivals")

    before, everything = (expected("arrivals", datetime(2013, 1, day, tzinfo=UTC)) for day in (5, 6))
    assert Counter(record.id for record in airport.sent(events)) == _ids(everything, events)
    assert Counter(record.id for record in airport.sent(dead_letters)) == _ids(everything - before, dead_letters)


def _ids(entries: Counter[tuple[str, str]], stream: str) -> dict[str, int]:
    return {identity: count for (topic, identity), count in entries.items() if topic == stream}


@pytest.mark.parametrize("partitions", [[0], [0, 1]])
def test_a_service_whose_records_are_deleted_says_so_and_sends_nothing(airport: Airport, partitions: list[int]) -> None:
    topic = topics.WEATHER_OBSERVED.name
    airport.set_clock()
    airport.run("weather", HEADRACE_LIMIT="50")
    deleted = [TopicPartition(topic, partition, OFFSET_END) for partition in partitions]
    for future in airport.admin.delete_records(deleted).values():
        future.result()

    for service in ("replay", "weather"):
        with airport.running(service, HEADRACE_LIMIT="50") as process:
            assert process.wait(120) == 1
        assert "headrace up --fresh" in airport.log(service).splitlines()[-1]
    assert airport.count(topic) == 50


def test_a_limit_ends_a_service_and_the_next_one_goes_on(airport: Airport) -> None:
    airport.set_clock()
    for _ in range(2):
        airport.run("weather", HEADRACE_LIMIT="50")

    first = [entry.id for entry, _ in zip(timeline("weather").entries(), range(100), strict=False)]
    assert sorted(record.id for record in airport.sent(topics.WEATHER_OBSERVED.name)) == sorted(first)


def test_nothing_is_sent_before_the_clock_says_so(airport: Airport) -> None:
    # A day of flights in eight seconds.
    airport.set_clock(speed="10800", from_at="2013-01-05T05:00Z", until="2013-01-06T05:00Z")
    (clock,) = airport.clocks()

    airport.run("departures")

    sent = airport.sent(topics.FLIGHTS_DEPARTED.name)
    assert len(sent) > 500
    assert all(clock.event_at <= record.occurred_at <= datetime(2013, 1, 6, 5, tzinfo=UTC) for record in sent)
    # Kafka's timestamps are cut to milliseconds.
    assert all((clock.wall_time(record.occurred_at) - record.sent_at).total_seconds() < 0.002 for record in sent)


def test_a_service_waits_for_the_clock_and_follows_a_newer_one(airport: Airport) -> None:
    with airport.running("weather") as process:
        wait_for("the service to wait", lambda: "waiting for the replay clock" in airport.log("weather"))
        # In step with life: nothing for an hour.
        airport.set_clock(speed="1")
        wait_for("the first clock", lambda: '"speed": 1.0' in airport.log("weather"))
        assert airport.count(topics.WEATHER_OBSERVED.name) == 0
        airport.set_clock(until="2013-01-02T00:00Z")
        assert process.wait(120) == 0

    sent = airport.sent(topics.WEATHER_OBSERVED.name)
    assert len(sent) == sum(expected("weather", datetime(2013, 1, 2, tzinfo=UTC)).values())


def test_a_new_clock_goes_on_at_the_furthest_event(airport: Airport) -> None:
    airport.set_clock(until="2013-01-02T12:00Z")
    airport.run("weather")
    airport.set_clock(speed="100")

    first, second = airport.clocks()
    assert first.event_at == datetime(2013, 1, 1, 5, tzinfo=UTC)
    assert second.event_at == datetime(2013, 1, 2, 12, tzinfo=UTC)


def test_sigterm_ends_a_service_with_status_0(airport: Airport) -> None:
    airport.set_clock(speed="1")
    with airport.running("arrivals") as process:
        wait_for("the service to run", lambda: "replay clock" in airport.log("arrivals"))
        process.terminate()
        assert process.wait(60) == 0


def test_a_missing_topic_is_one_clear_sentence(airport: Airport) -> None:
    for future in airport.admin.delete_topics([topics.WEATHER_OBSERVED.name]).values():
        future.result()
    with airport.running("weather") as process:
        assert process.wait(120) == 1
    assert "weather.observed.v1: " in airport.log("weather").splitlines()[-1]

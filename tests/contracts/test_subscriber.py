"""What a downstream team gets: every event at least once, typed, and nothing swallowed."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import re
import subprocess
import sys
import threading
import time
import tracemalloc
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pydantic
import pytest
from confluent_kafka import Consumer, ConsumerGroupState, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from contracts import subscriber
from contracts.definitions.catalog import Catalog
from contracts.errors import ConsumeError, ForeignBody, TooLong, Truncated, UnknownSchemaId
from contracts.handle import Topic
from contracts.publisher import Publisher
from contracts.records.codec import Codec
from contracts.records.limits import RAW_BYTES
from contracts.servers import brokers
from contracts.servers.provision import create_topics, register_contracts
from contracts.servers.registry import Registry
from contracts.settings import Settings
from contracts.subscriber import Record, Subscriber, Undecodable
from deploy.local.servers.stack import LocalStack
from tests.administered import add_partitions
from tests.alerting.worker import wait_for
from tests.contracts.gateway import a_gateway
from tests.contracts.project import a_project, applied, dispatched_schema, settings_of
from tests.contracts.wire import a_dispatch
from tests.producers import ordered
from tests.raw_records import NO_TEXT, RawRecord, send_raw
from tests.sample import events

pytestmark = pytest.mark.system


@dataclasses.dataclass
class Room:
    """A topic of the test's own, and both of its ends."""

    topic: Topic[events.ParcelDispatched]
    catalog: Catalog
    settings: Settings
    group: str

    def publish(self, *event_ids: str) -> None:
        """Publish a dispatch for each id, which is also its destination."""
        with (
            Registry(self.settings.registry) as registry,
            Publisher(
                self.settings, catalog=self.catalog, registry=registry, service="dispatches", topics=[self.topic]
            ) as publisher,
        ):
            for event_id in event_ids:
                publisher.publish(self.topic, a_dispatch(destination=event_id), event_id=event_id)

    def publish_keyed(self, numbers: Iterable[int]) -> None:
        """Publish a dispatch of its own parcel for each number, so that they spread over the partitions."""
        with (
            Registry(self.settings.registry) as registry,
            Publisher(
                self.settings, catalog=self.catalog, registry=registry, service="dispatches", topics=[self.topic]
            ) as publisher,
        ):
            for number in numbers:
                publisher.publish(self.topic, a_dispatch(parcel_id=f"parcel-{number}"), event_id=str(number))

    def value(self) -> bytes:
        """A dispatch as it lies on the topic."""
        with Registry(self.settings.registry) as registry:
            schema_id = registry.latest(self.catalog.topic(self.topic.name).subject).id
            return Codec(registry.by_id).encode(schema_id, a_dispatch(destination="IAH").model_dump())

    def register_elsewhere(self) -> int:
        """The id of a schema that reads as the topic's own, and that only another subject has."""
        schema = json.loads(self.catalog.schema(self.topic.name)) | {"doc": uuid.uuid4().hex}
        with Registry(self.settings.registry) as registry:
            return registry.register(f"trials.{uuid.uuid4().hex}.v1-value", json.dumps(schema))

    def send(
        self,
        value: bytes | None,
        partition: int = 0,
        headers: Sequence[tuple[str, bytes]] = (("traceparent", b"00-ab-cd-01"),),
    ) -> None:
        """Send a raw record."""
        producer = ordered(self.settings.kafka.client_config())
        producer.produce(self.topic.name, value, b"key", partition=partition, headers=list(headers))
        assert producer.flush(30) == 0

    def make_anew(self, value: bytes, count: int) -> None:
        """Delete the topic, and send so many records to one of the same name."""
        admin, name = AdminClient({**self.settings.kafka.client_config()}), self.topic.name
        before = brokers.topic_ids(admin, [name], 30)
        admin.delete_topics([name])[name].result()
        wait_for(lambda: name not in admin.list_topics(timeout=30).topics, "the topic to be gone")
        create_topics(self.settings, self.catalog)
        assert brokers.topic_ids(admin, [name], 30) != before
        for _ in range(count):
            self.send(value)

    def committed(self) -> list[TopicPartition]:
        """What the group has committed, metadata included."""
        with closing(Consumer({**self.settings.kafka.client_config(), "group.id": self.group})) as consumer:
            return [each for each in consumer.committed([TopicPartition(self.topic.name, 0)], 30) if each.offset >= 0]

    def commit(self, offsets: list[TopicPartition]) -> None:
        """As a member of the group does."""
        with closing(Consumer({**self.settings.kafka.client_config(), "group.id": self.group})) as consumer:
            consumer.commit(offsets=offsets, asynchronous=False)

    def subscriber(self, *, idle_seconds: float | None = 2, **options: Any) -> Subscriber[events.ParcelDispatched]:
        options = {"catalog": self.catalog, "idle_seconds": idle_seconds, **options}
        return Subscriber(self.topic, self.group, options.pop("settings", self.settings), **options)

    def destinations(self, **options: Any) -> list[str]:
        """The destinations of all events that a subscriber of the group gets until it is idle."""
        with self.subscriber(**options) as subscriber:
            return [record.event.destination for record in subscriber if isinstance(record, Record)]


@pytest.fixture
def room(stack: LocalStack, tmp_path: Path) -> Iterator[Room]:
    catalog = a_project(tmp_path)
    topic = Topic(applied(catalog, stack), events.ParcelDispatched)
    yield Room(topic, catalog, settings_of(stack), f"tests-{uuid.uuid4().hex}")


def test_a_new_group_gets_every_typed_event_from_the_beginning_in_order(room: Room) -> None:
    room.publish(*"abc")
    with room.subscriber() as subscriber:
        records = [record for record in subscriber if isinstance(record, Record)]
    assert [record.event for record in records] == [a_dispatch(destination=each) for each in "abc"]
    assert [record.event_id for record in records] == ["a", "b", "c"]
    assert records[0].coordinate == f"{room.topic.name}/{records[0].partition}/0"


def test_what_was_handled_does_not_come_again(room: Room) -> None:
    room.publish(*"abc")
    assert room.destinations() == ["a", "b", "c"]
    room.publish("d")
    assert room.destinations() == ["d"]


def test_the_record_at_hand_when_the_loop_is_left_comes_again(room: Room) -> None:
    room.publish(*"abc")
    with pytest.raises(LookupError), room.subscriber() as subscriber:
        for record in subscriber:
            if isinstance(record, Record) and record.event.destination == "b":
                raise LookupError("handling b failed")
    assert room.destinations() == ["b", "c"]


def test_it_comes_again_in_the_next_loop_over_the_same_object(room: Room) -> None:
    room.publish(*"abc")
    with room.subscriber() as subscriber:
        with pytest.raises(LookupError):
            for record in subscriber:
                if isinstance(record, Record) and record.event.destination == "b":
                    raise LookupError("handling b failed")
        assert [record.event_id for record in subscriber] == ["b", "c"]
    assert room.destinations() == []


def test_a_loop_that_ended_idle_may_be_followed_by_another(room: Room) -> None:
    with room.subscriber() as subscriber:
        assert not list(subscriber)
        room.publish(*"ab")
        assert [record.event_id for record in subscriber] == ["a", "b"]
        time.sleep(2.5)
        room.publish("c")
        assert [record.event_id for record in subscriber] == ["c"]


def test_a_repeated_id_is_dropped_and_counted(room: Room) -> None:
    room.publish("a", "b", "a", "c", "b")
    with room.subscriber() as subscriber:
        assert [record.event_id for record in subscriber] == ["a", "b", "c"]
        assert subscriber.repeats == 2
    assert room.destinations() == [], "a dropped repeat counts as handled"


def test_a_record_that_was_set_aside_has_no_repeats(room: Room) -> None:
    room.publish("a", "b", "a", "b", "a")
    seen: list[Record[events.ParcelDispatched]] = []
    with room.subscriber() as subscriber:
        for record in subscriber:
            assert isinstance(record, Record)
            seen.append(record)
            if record.offset == 1:
                # The one before, and the one at hand.
                subscriber.forget(seen[0])
                subscriber.forget(record)
        assert [record.offset for record in seen] == [0, 1, 2, 3]
        assert subscriber.repeats == 1


def test_a_later_revision_of_an_event_is_no_repeat(stack: LocalStack, tmp_path: Path) -> None:
    class Repaired(events.ParcelDispatched):
        revision: int

    schema = dispatched_schema()
    schema["fields"].append({"name": "revision", "type": "int", "doc": "A count."})
    catalog = a_project(tmp_path, schemas=[schema])
    topic, settings = Topic(applied(catalog, stack), Repaired), settings_of(stack)
    with (
        Registry(settings.registry) as registry,
        Publisher(settings, catalog=catalog, registry=registry, service="dispatches", topics=[topic]) as publisher,
    ):
        for revision in (0, 1, 1, 2, 0):
            publisher.publish(topic, Repaired(**vars(a_dispatch()), revision=revision), event_id="a")
    with Subscriber(topic, "tests-revisions", settings, catalog=catalog, idle_seconds=2) as subscriber:
        records = [record for record in subscriber if isinstance(record, Record)]
    assert [record.event.revision for record in records] == [0, 1, 2]
    assert subscriber.repeats == 2


def test_an_id_that_left_the_window_is_given_again(room: Room) -> None:
    room.publish("a", "b", "a", "c", "d", "a")
    assert room.destinations(repeats_window=2) == ["a", "b", "c", "d", "a"]


def test_ids_as_long_as_a_record_are_told_apart_and_take_no_memory(room: Room) -> None:
    ids = [f"{'x' * 200_000}{number}" for number in range(50)]
    value = room.value()
    for event_id in ids * 2:
        room.send(value, headers=[("ce_id", event_id.encode()), ("ce_source", b"/tests")])
    seen = 0
    with room.subscriber() as subscriber:
        tracemalloc.start()
        try:
            for _ in subscriber:
                seen += 1
            taken, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert (seen, subscriber.repeats) == (50, 50)
    assert taken < 2_000_000, "all of the ids have 10 MB"


def test_undecodable_records_are_handed_over_as_they_are_and_the_rest_goes_on(room: Room) -> None:
    room.publish("a")
    foreign = room.register_elsewhere().to_bytes(5, "big") + room.value()[5:]
    bodies = [b'{"parcel": 1}', b"\x00\xee\x6b\x28\x00" + b"x", foreign, None, b"\x00\x00"]
    for body in bodies:
        room.send(body)
    room.publish("b")
    with room.subscriber() as subscriber:
        records = list(subscriber)
    bad = [record for record in records if isinstance(record, Undecodable)]
    kinds = [ForeignBody, UnknownSchemaId, UnknownSchemaId, Truncated, Truncated]
    assert [type(record.error) for record in bad] == kinds
    assert [record.value for record in bad] == bodies
    assert all(record.headers == (("traceparent", b"00-ab-cd-01"),) and record.key == b"key" for record in bad)
    assert {record.event.destination for record in records if isinstance(record, Record)} == {"a", "b"}


def test_a_record_whose_header_names_are_no_text_is_handed_over_without_headers(
    room: Room, caplog: pytest.LogCaptureFixture
) -> None:
    room.publish("a")
    with Registry(room.settings.registry) as registry:
        schema_id = registry.latest(f"{room.topic.name}-value").id
        good = Codec(registry.by_id).encode(schema_id, vars(a_dispatch(destination="bare")))
    headers = ((NO_TEXT, b"x"), (b"ce_id", b"theirs"))
    send_raw(room.settings.kafka, room.topic.name, 0, [RawRecord(b"key", value, headers) for value in (good, b"bad")])
    room.publish("b")
    with room.subscriber() as subscriber:
        records = list(subscriber)
    assert {record.event.destination for record in records if isinstance(record, Record)} == {"a", "bare", "b"}
    bare = [record for record in records if record.key == b"key"]
    assert [(record.event_id, record.headers) for record in bare] == [(record.coordinate, ()) for record in bare]
    assert [type(record) for record in bare] == [Record, Undecodable]
    told = [record.coordinate for record in bare if f"{record.coordinate}: taken as without headers" in caplog.text]
    assert told == [bare[0].coordinate]


def test_a_record_larger_than_its_topics_are_is_handed_over_as_too_long(room: Room) -> None:
    value = room.value()
    most = b"k" * (RAW_BYTES - len(value))
    for key, headers in ((most, ()), (most + b"k", ()), (most, ((b"x", b"h" * 100_000),))):
        send_raw(room.settings.kafka, room.topic.name, 0, [RawRecord(key, value, headers)])
    with room.subscriber(repeats_window=0) as subscriber:
        fits, larger, with_headers = subscriber
    assert (type(fits), type(with_headers)) == (Record, Record)
    assert isinstance(larger, Undecodable)
    assert isinstance(larger.error, TooLong)
    assert str(larger.error) == f"key and value have {RAW_BYTES + 1} bytes, and those of its topic at most {RAW_BYTES}"


def test_records_of_aborted_transactions_are_not_seen(room: Room) -> None:
    room.publish("a")
    producer = ordered({**room.settings.kafka.client_config(), "transactional.id": room.group})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(room.topic.name, b"never committed", partition=0)
    producer.flush(30)
    producer.abort_transaction(30)
    room.publish("b")
    with room.subscriber() as subscriber:
        assert [record.event_id for record in subscriber] == ["a", "b"]


def test_events_of_an_older_version_have_the_newer_ones_fields(room: Room, stack: LocalStack, tmp_path: Path) -> None:
    class OlderDispatched(pydantic.BaseModel):
        parcel_id: str
        dispatched_at: pydantic.AwareDatetime

    older = dispatched_schema(only=("parcel_id", "dispatched_at"))
    newer = dispatched_schema(only=("parcel_id", "dispatched_at", "van_id"))

    class NewerDispatched(OlderDispatched):
        van_id: str | None

    first = a_project(tmp_path / "first", schemas=[older])
    name = applied(first, stack)
    both = a_project(tmp_path / "both", topic=name, schemas=[older, newer])
    at = a_dispatch().dispatched_at
    with Registry(room.settings.registry) as registry:
        old, new = Topic(name, OlderDispatched), Topic(name, NewerDispatched)
        with Publisher(
            room.settings, catalog=first, registry=registry, service="dispatches", topics=[old]
        ) as publisher:
            publisher.publish(old, OlderDispatched(parcel_id="old", dispatched_at=at), event_id="old")
        register_contracts(registry, both)
        with Publisher(room.settings, catalog=both, registry=registry, service="dispatches", topics=[new]) as publisher:
            event = NewerDispatched(parcel_id="new", dispatched_at=at, van_id="N14228")
            publisher.publish(new, event, event_id="new")
    with Subscriber(
        Topic(name, NewerDispatched), room.group, room.settings, catalog=both, idle_seconds=2
    ) as subscriber:
        found = {record.event_id: record.event for record in subscriber if isinstance(record, Record)}
    assert {event_id: event.van_id for event_id, event in found.items()} == {"old": None, "new": "N14228"}


def test_an_outage_of_the_registry_is_waited_out(room: Room, stack: LocalStack) -> None:
    room.publish(*"abc")
    with a_gateway(stack.registry.url, answers=[(503, "busy")] * 8) as gateway:
        settings = settings_of(stack, registry_url=gateway.url)
        with Registry(settings.registry, retry_seconds=0.3) as registry:
            assert room.destinations(settings=settings, registry=registry) == ["a", "b", "c"]
        assert len(gateway.seen) > 8


def test_an_outage_longer_than_the_idle_time_is_waited_out_too(room: Room, stack: LocalStack) -> None:
    room.publish(*"abc")
    with a_gateway(stack.registry.url) as gateway:
        gateway.fail(503)
        settings = settings_of(stack, registry_url=gateway.url)
        with Registry(settings.registry, retry_seconds=3) as registry:
            threading.Timer(5, gateway.heal).start()
            assert room.destinations(settings=settings, registry=registry, idle_seconds=1.5) == ["a", "b", "c"]


def test_the_time_that_handling_takes_is_not_idle(room: Room) -> None:
    room.publish(*"abc")
    handled = []
    with room.subscriber(idle_seconds=3) as subscriber:
        for record in subscriber:
            threading.Event().wait(4)  # the handling
            handled.append(record.event_id)
    assert handled == ["a", "b", "c"]


def test_a_topic_that_does_not_exist_is_an_error(room: Room, tmp_path: Path) -> None:
    catalog = a_project(tmp_path / "uncreated")
    topic = Topic(next(iter(catalog.topics)), events.ParcelDispatched)
    with pytest.raises(ConsumeError, match="UNKNOWN_TOPIC"):
        dataclasses.replace(room, topic=topic, catalog=catalog).destinations(idle_seconds=None)


def test_stop_ends_the_iteration_after_the_record_at_hand(room: Room) -> None:
    room.publish(*"abc")
    with room.subscriber(idle_seconds=None) as subscriber:
        for record in subscriber:
            if record.event_id == "b":
                subscriber.stop()
    assert room.destinations() == ["c"]


def test_members_that_come_and_go_lose_nothing(room: Room) -> None:
    handled: Counter[str] = Counter()
    joined = threading.Event()

    def pass_by() -> None:
        with room.subscriber(idle_seconds=None) as passing:
            for record in passing:
                handled[record.event_id] += 1
                joined.set()
                passing.stop()

    published = 100
    room.publish_keyed(range(published))
    visitor = threading.Thread(target=pass_by, daemon=True)
    visitor.start()
    with room.subscriber(idle_seconds=5) as staying:
        for record in staying:
            handled[record.event_id] += 1
            if len(handled) == published and not joined.is_set():
                room.publish_keyed(range(published, published + 100))
                published += 100
    visitor.join(60)
    assert joined.is_set(), "waited for the second member to get a record"
    assert set(handled) == {str(number) for number in range(published)}


def test_a_group_that_begins_at_the_end_misses_nothing_after_that(room: Room) -> None:
    room.publish("before")
    assert room.destinations(start="latest") == []
    room.publish_keyed(range(30))  # while nobody is there, to partitions of which it has never had a record
    assert len(room.destinations(start="latest")) == 30
    assert room.destinations(start="latest") == []


@pytest.mark.parametrize(("start", "expected"), [("earliest", ["a", "b", "c"]), ("latest", ["c"])])
def test_a_group_that_could_not_begin_at_once_begins_later_and_calls_nothing_lost(
    start: str, expected: list[str], room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    room.publish("a", "b")
    failures = [KafkaException(KafkaError(KafkaError._TRANSPORT))]

    def partitions_of(*asked: Any) -> list[int]:
        if failures:
            raise failures.pop()
        return brokers.partitions_of(*asked)

    monkeypatch.setattr(subscriber, "partitions_of", partitions_of)

    def publish_when_begun(reader: Subscriber[Any]) -> None:
        until = time.monotonic() + 60
        while not reader._is_begun and time.monotonic() < until:
            time.sleep(0.05)
        room.publish("c")

    with room.subscriber(start=start, idle_seconds=10) as given:
        later = threading.Thread(target=publish_when_begun, args=(given,))
        later.start()
        destinations = [record.event.destination for record in given if isinstance(record, Record)]
        later.join()
    assert (failures, sorted(destinations), given.lost) == ([], expected, 0)


def test_a_partition_that_is_added_is_read_from_its_first_record(room: Room) -> None:
    assert room.destinations(start="latest") == []
    admin = AdminClient({**room.settings.kafka.client_config()})
    partitions = len(admin.list_topics(room.topic.name).topics[room.topic.name].partitions)
    add_partitions(admin, room.topic.name, partitions + 1)
    room.send(b"junk", partition=partitions)
    with room.subscriber(start="latest") as subscriber:
        assert [record.partition for record in subscriber] == [partitions]


def test_records_that_are_gone_unread_are_an_error_or_counted(room: Room, caplog: pytest.LogCaptureFixture) -> None:
    room.send(b"first")
    with room.subscriber() as subscriber:
        assert [record.offset for record in subscriber] == [0]
    for _ in range(4):
        room.send(b"more")
    admin = AdminClient({**room.settings.kafka.client_config()})
    for future in admin.delete_records([TopicPartition(room.topic.name, 0, 3)]).values():
        future.result()
    with (
        room.subscriber() as subscriber,
        pytest.raises(ConsumeError, match="/0: 2 offsets from 1 up to 3 are gone") as told,
    ):
        list(subscriber)
    assert 'on_data_loss="continue" to go on at 3' in str(told.value)
    with room.subscriber(on_data_loss="continue") as subscriber:
        assert [record.offset for record in subscriber] == [3, 4]
        assert subscriber.lost == 2
    assert "2 offsets from 1 up to 3 are gone" in caplog.text
    with room.subscriber() as subscriber:
        assert list(subscriber) == []


def test_a_transactions_marker_that_is_gone_is_no_loss(room: Room) -> None:
    producer = ordered({**room.settings.kafka.client_config(), "transactional.id": room.group})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(room.topic.name, b"committed", partition=0)
    producer.commit_transaction(30)
    with room.subscriber() as subscriber:
        assert [record.offset for record in subscriber] == [0]
    admin = AdminClient({**room.settings.kafka.client_config()})
    [deleted] = admin.delete_records([TopicPartition(room.topic.name, 0, -1)]).values()
    assert deleted.result().low_watermark == 2
    with room.subscriber() as subscriber:
        assert list(subscriber) == []


@pytest.mark.parametrize("is_running", [True, False])
def test_a_topic_made_anew_is_not_taken_for_the_one_before(
    is_running: bool, room: Room, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(subscriber, "_LOOK_SECONDS", 0.0)
    for _ in range(3):
        room.send(b"old")
    with room.subscriber(idle_seconds=30, on_data_loss="continue") as reader:
        records = iter(reader)
        assert [next(records).offset for _ in range(3)] == [0, 1, 2]
        if is_running:
            room.make_anew(b"new", count=5)
            got = [record for _, record in zip(range(5), records, strict=False)]
            assert [(record.value, record.offset) for record in got] == [(b"new", offset) for offset in range(5)]
    if not is_running:
        committed = room.committed()
        room.make_anew(b"new", count=5)
        wait_for(lambda: room.committed() == [], "the broker to delete the group's offsets with the topic")
        room.commit(committed)  # on its way meanwhile, by a member that had not seen it
        with room.subscriber() as reader, pytest.raises(ConsumeError, match="was deleted and made anew, and the group"):
            list(reader)
        with room.subscriber(on_data_loss="continue") as reader:
            assert [record.offset for record in reader] == [0, 1, 2, 3, 4]
    assert "read the one before it. Begins the new one" in caplog.text
    with room.subscriber() as reader:
        assert len(list(reader)) == is_running  # the last one was at hand


def test_of_a_topic_made_anew_no_record_is_a_repeat_of_one_before(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriber, "_LOOK_SECONDS", 0.0)
    value = room.value()
    for _ in range(3):
        room.send(value)  # without an id, so their coordinates are theirs
    with room.subscriber(idle_seconds=30, on_data_loss="continue") as reader:
        records = iter(reader)
        assert [next(records).offset for _ in range(3)] == [0, 1, 2]
        room.make_anew(value, count=5)
        assert [record.offset for _, record in zip(range(5), records, strict=False)] == [0, 1, 2, 3, 4]
        assert reader.repeats == 0


UNKNOWN = KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION))


@pytest.mark.parametrize(
    ("call", "answers"),
    [("watermarks", [UNKNOWN]), ("watermarks", [UNKNOWN, UNKNOWN]), ("partitions_of", [[]])],
    ids=["a failure", "two failures", "a broker that has not heard of it"],
)
def test_nothing_is_read_of_a_topic_made_anew_before_it_is_known_where_it_begins(
    call: str, answers: list[Any], room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscriber, "_LOOK_SECONDS", 0.0)
    for _ in range(3):
        room.send(b"old")
    with room.subscriber(idle_seconds=30, on_data_loss="continue") as reader:
        records = iter(reader)
        assert [next(records).offset for _ in range(3)] == [0, 1, 2]
        room.make_anew(b"new", count=5)
        left = answering_first(monkeypatch, call, answers)
        got = [record for _, record in zip(range(5), records, strict=False)]
    assert not left
    assert [(record.value, record.offset) for record in got] == [(b"new", offset) for offset in range(5)]


def test_the_time_that_a_group_takes_to_begin_is_no_idle_time(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    room.publish("a")
    left = answering_first(monkeypatch, "watermarks", [UNKNOWN, UNKNOWN])
    with room.subscriber(idle_seconds=0.9) as reader:
        assert len(list(reader)) == 1
    assert not left


def test_a_right_that_is_missing_to_begin_is_an_error(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    forbidden = KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
    answering_first(monkeypatch, "watermarks", [forbidden])
    with room.subscriber() as reader, pytest.raises(ConsumeError, match="TOPIC_AUTHORIZATION_FAILED"):
        list(reader)


def test_a_reader_that_was_refused_reads_nothing_after_it(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriber, "_LOOK_SECONDS", 0.0)
    for _ in range(3):
        room.send(b"old")
    with room.subscriber(idle_seconds=3) as reader:
        records = iter(reader)
        assert next(records).offset == 0
        room.make_anew(b"new", count=5)
        for again in (records, iter(reader)):
            with pytest.raises(ConsumeError, match="was deleted and made anew"):
                assert [record.value for record in again if record.value == b"new"] == []


@pytest.mark.parametrize("again", [1, 5], ids=["shorter", "longer"])
def test_a_topic_made_anew_is_called_so_however_it_is_noticed(
    again: int, room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is noticed by a look at the topic, or by an offset that brokers don't know, while it is shorter than what was read."""
    for _ in range(3):
        room.send(b"old")
    with room.subscriber(idle_seconds=10) as reader:
        records = iter(reader)
        assert [next(records).offset for _ in range(3)] == [0, 1, 2]
        monkeypatch.setattr(subscriber, "_LOOK_SECONDS", 5.0 if again > 3 else 1000.0)
        room.make_anew(b"new", count=again)
        with pytest.raises(ConsumeError, match="was deleted and made anew"):
            list(records)


@pytest.mark.parametrize(
    "name",
    [
        *("group.protocol", "partition.assignment.strategy", "group.id", "auto.offset.reset", "isolation.level"),
        *("enable.auto.commit", "enable.auto.offset.store", "enable.partition.eof"),
    ],
)
def test_what_it_rests_on_is_not_to_be_set(name: str, room: Room) -> None:
    with pytest.raises(ValueError, match=f"leave {re.escape(name)} out of consumer_config: "):
        room.subscriber(consumer_config={name: "x"})


def run_alone(program: str, stack: LocalStack) -> subprocess.CompletedProcess[str]:
    """Run a program whose process may be aborted, or hang."""
    try:
        return subprocess.run(
            [sys.executable, "-c", f"import faulthandler\nfaulthandler.dump_traceback_later(100)\n{program}"],
            env={**os.environ, **stack.settings_env()},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    except subprocess.TimeoutExpired as hung:
        pytest.fail(f"it hangs: {hung.stdout!r}, {(hung.stderr or b'')[-3000:]!r}")


def test_what_the_client_logs_while_it_joins_does_not_end_the_process(room: Room, stack: LocalStack) -> None:
    """A call within a callback that serves other callbacks would abort it."""
    room.publish("a")
    program = f"""
from contracts import subscriber, topics
from contracts.settings import Settings
from contracts.subscriber import Subscriber
import time
own = subscriber.watermarks
subscriber.watermarks = lambda *asked: (time.sleep(0.5), own(*asked))[1]
with Subscriber(topics.ALERTS_RAISED, "{room.group}", Settings(), idle_seconds=2, consumer_config={{"debug": "all"}}) as alerts:
    list(alerts)
print("ended")
"""
    done = run_alone(program, stack)
    assert (done.returncode, done.stdout) == (0, "ended\n"), done.stderr[-2000:]


def test_what_the_client_had_put_off_does_not_end_the_process(room: Room, stack: LocalStack) -> None:
    """It joins anew, for the topic is not the one that it was, and is closed before it has: the client would abort the process."""
    room.publish("a")
    program = f"""
from contracts import subscriber, topics
from contracts.settings import Settings
from contracts.subscriber import Subscriber
import uuid
subscriber._LOOK_SECONDS = 0
subscriber.topic_ids = lambda admin, names, seconds: dict.fromkeys(names, uuid.uuid4().hex)
subscribe = Subscriber._subscribe
def interrupted(self):
    subscribe(self)
    if self._topic_id is not None:
        raise KeyboardInterrupt
Subscriber._subscribe = interrupted
try:
    with Subscriber(topics.ALERTS_RAISED, "{room.group}", Settings(), idle_seconds=20) as alerts:
        list(alerts)
except KeyboardInterrupt:
    print("ended")
"""
    done = run_alone(program, stack)
    assert (done.returncode, done.stdout) == (0, "ended\n"), done.stderr[-2000:]


def test_one_that_is_closed_while_it_joins_does_not_begin(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever leaves the group asks brokers for nothing any more: they would not answer, and the end would wait for them."""
    room.publish("a")
    assign, joined = Subscriber._on_assign, threading.Event()
    begun: list[object] = []

    def assigned(self: Subscriber[Any], *arguments: Any) -> None:
        joined.set()
        assign(self, *arguments)

    monkeypatch.setattr(Subscriber, "_on_assign", assigned)
    monkeypatch.setattr(Subscriber, "_begin", lambda *arguments: begun.append(arguments))
    reader = room.subscriber()
    member = AdminClient({**room.settings.kafka.client_config()})
    state = ConsumerGroupState.STABLE
    wait_for(lambda: member.describe_consumer_groups([room.group])[room.group].result().state == state, "the group")
    time.sleep(1)
    reader.close()
    assert (joined.is_set(), begun, room.committed()) == (True, [], [])


def test_of_two_loops_at_once_the_first_ends(room: Room) -> None:
    room.publish(*"abc")
    with room.subscriber() as reader:
        first = iter(reader)
        assert next(first).event_id == "a"
        assert [record.event_id for record, _ in zip(reader, range(2), strict=False)] == ["a", "b"]
        with pytest.raises(RuntimeError, match="another loop over this Subscriber has begun"):
            next(first)
        assert [record.event_id for record in reader] == ["c"]


def test_a_record_that_an_interrupted_loop_had_taken_comes_again(room: Room) -> None:
    class InterruptedOnce:
        """The consumer; Ctrl-C comes when it has taken a record and not given it."""

        def __init__(self, consumer: Any) -> None:
            self._consumer = consumer
            self._is_due = True

        def __getattr__(self, name: str) -> Any:
            return getattr(self._consumer, name)

        def poll(self, seconds: float) -> Any:
            message = self._consumer.poll(seconds)
            if message is not None and self._is_due:
                self._is_due = False
                raise KeyboardInterrupt
            return message

    room.publish(*"abc")
    with room.subscriber() as reader:
        reader._consumer = InterruptedOnce(reader._consumer)  # type: ignore[assignment]
        with pytest.raises(KeyboardInterrupt):
            list(reader)
        assert [record.event_id for record in reader] == ["a", "b", "c"]


def test_each_loop_hears_of_records_that_are_gone(room: Room) -> None:
    room.send(b"first")
    assert len(list(_read_all(room))) == 1
    room.send(b"more")
    admin = AdminClient({**room.settings.kafka.client_config()})
    for future in admin.delete_records([TopicPartition(room.topic.name, 0, 2)]).values():
        future.result()
    with room.subscriber() as reader:
        for _ in range(2):
            with pytest.raises(ConsumeError, match="/0: 1 offsets from 1 up to 2 are gone"):
                list(reader)


def test_a_log_that_was_cut_and_has_grown_again_is_a_loss(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(3):
        room.send(b"old")
    with room.subscriber() as reader:
        assert len(list(reader)) == 3
        monkeypatch.setattr(subscriber, "watermarks", lambda *_: (0, 105))
        with pytest.raises(ConsumeError, match="it had ended before offset 3 of the group"):
            reader._find_place(0)


def test_a_rebalance_is_no_idle_time(room: Room) -> None:
    """It waits for a member that has a record at hand, while another one joins."""
    reads, holds, goes_on, ends = (threading.Event() for _ in range(4))

    def reading() -> bool:
        with room.subscriber(idle_seconds=2) as reader:
            for _ in reader:
                reads.set()
            return goes_on.is_set()

    def holding() -> None:
        with room.subscriber(idle_seconds=2) as reader:
            for _ in reader:
                if reads.is_set() and not holds.is_set():
                    holds.set()
                    time.sleep(6)
                    goes_on.set()

    def numbers() -> Iterator[int]:
        for number in itertools.count():
            if ends.is_set():
                return
            yield number
            time.sleep(0.02)

    with ThreadPoolExecutor(4) as at_once:
        at_once.submit(room.publish_keyed, numbers())
        try:
            found, held = at_once.submit(reading), at_once.submit(holding)
            assert holds.wait(60)
            at_once.submit(reading)
            assert goes_on.wait(60)
        finally:
            ends.set()
        held.result(60)
        assert found.result(60)


def _read_all(room: Room) -> list[Any]:
    with room.subscriber() as reader:
        return list(reader)


def answering_first(monkeypatch: pytest.MonkeyPatch, call: str, answers: Sequence[Any]) -> list[Any]:
    """A call to the broker has these answers, or failures, before its own; returns those that are left."""
    left = list(answers)
    own = getattr(brokers, call)

    def ask(*asked: Any) -> Any:
        if not left:
            return own(*asked)
        answer = left.pop()
        if isinstance(answer, KafkaException):
            raise answer
        return answer

    monkeypatch.setattr(subscriber, call, ask)
    return left


def test_one_id_of_two_sources_is_two_events(room: Room) -> None:
    value = room.value()
    for source in (b"/a", b"/b", b"/a"):
        room.send(value, headers=[("ce_id", b"1"), ("ce_source", source)])
    with room.subscriber() as subscriber:
        assert [record.source for record in subscriber] == ["/a", "/b"]
        assert subscriber.repeats == 1

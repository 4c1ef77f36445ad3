"""What is published is on its topic as the contract says, or the caller hears of it."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import itertools
import os
import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from aiokafka.partitioner import murmur2
from confluent_kafka.admin import AdminClient

from contracts import publisher as publisher_module
from contracts.dead_letters.letter import DeadLetter
from contracts.definitions.catalog import Catalog
from contracts.delivery import Delivered
from contracts.errors import DeliveryError, EncodeError, NotAProducer, RegistryUnavailable, TooLong
from contracts.handle import Topic
from contracts.publisher import Outlet, Publisher
from contracts.records.codec import Codec
from contracts.records.headers import headers_of
from contracts.records.limits import KEPT_BYTES, record_size
from contracts.servers.registry import Registry
from contracts.settings import Settings
from deploy.errors import DeployError
from deploy.local.servers.stack import LocalStack
from deploy.records import send as send_module
from deploy.records.send import send
from tests.administered import limit_batches
from tests.alerting.worker import wait_for
from tests.contracts.gateway import a_gateway
from tests.contracts.project import a_project, applied, settings_of
from tests.contracts.wire import a_dispatch, records_of
from tests.sample import events

pytestmark = pytest.mark.system

LARGE = secrets.token_hex(2000)
"""Text that no compression makes smaller than 2,000 bytes."""


@dataclasses.dataclass
class Room:
    """A topic of the test's own, and what is needed to publish to it."""

    topic: Topic[events.ParcelDispatched]
    catalog: Catalog
    settings: Settings
    registry: Registry

    def away(self) -> Room:
        """The same, where no broker answers."""
        kafka = self.settings.kafka.model_copy(update={"bootstrap_servers": "127.0.0.1:1"})
        return dataclasses.replace(self, settings=self.settings.model_copy(update={"kafka": kafka}))

    def publisher(self, service: str = "dispatches", **overrides: Any) -> Publisher:
        return Publisher(
            self.settings,
            catalog=self.catalog,
            registry=self.registry,
            service=service,
            topics=[self.topic],
            **overrides,
        )


@pytest.fixture
def room(stack: LocalStack, tmp_path: Path) -> Iterator[Room]:
    catalog = a_project(tmp_path)
    settings = settings_of(stack)
    with Registry(settings.registry) as registry:
        yield Room(Topic(applied(catalog, stack), events.ParcelDispatched), catalog, settings, registry)


def limit_record_size(topic: str, settings: Settings, size: int) -> None:
    limit_batches(AdminClient({**settings.kafka.client_config()}), topic, size)


def test_a_record_carries_body_key_and_cloudevents_headers(room: Room) -> None:
    event = a_dispatch()
    with room.publisher() as publisher:
        publisher.publish(room.topic, event, event_id="one", headers={"traceparent": b"00-ab-cd-01"})
    (record,) = records_of(room.topic.name, room.settings)
    body = record.value()
    assert isinstance(body, bytes)
    assert Codec(room.registry.by_id).decode(body) == event.model_dump()
    assert record.key() == b"UA1545-EST-20130101T1015Z"
    headers = record.headers()
    assert isinstance(headers, list)
    assert dict(headers) == {
        "ce_id": b"one",
        "ce_type": room.topic.name.encode(),
        "ce_source": b"/services/dispatches",
        "ce_time": b"2013-01-01T10:17:00.000Z",
        "ce_specversion": b"1.0",
        "content-type": b"application/avro",
        "traceparent": b"00-ab-cd-01",
    }
    sent_at = datetime.fromtimestamp(record.timestamp()[1] / 1000, UTC)
    assert abs((datetime.now(UTC) - sent_at).total_seconds()) < 300, "the record's time is that of sending"


def test_keys_meet_where_java_clients_put_them(room: Room) -> None:
    with room.publisher() as publisher:
        for number in range(50):
            publisher.publish(room.topic, a_dispatch(parcel_id=f"parcel-{number}"), event_id=str(number))
    records = records_of(room.topic.name, room.settings)
    assert len(records) == 50
    assert all(record.partition() == (murmur2(record.key()) & 0x7FFFFFFF) % 2 for record in records)


def test_a_service_that_the_contract_does_not_list_is_refused_at_start(room: Room) -> None:
    with pytest.raises(NotAProducer, match="dispatches, not by alerting"):
        room.publisher(service="alerting")


def test_a_publisher_has_a_registry_client_of_its_own_unless_one_is_given(room: Room) -> None:
    with Publisher(room.settings, catalog=room.catalog, service="dispatches", topics=[room.topic]) as publisher:
        publisher.publish(room.topic, a_dispatch(), event_id="one")
    assert len(records_of(room.topic.name, room.settings)) == 1


def test_a_topic_that_the_publisher_was_not_made_for_is_refused(room: Room) -> None:
    with room.publisher() as publisher, pytest.raises(NotAProducer):
        publisher.publish(Topic("parcels.dispatched.v1", events.ParcelDispatched), a_dispatch(), event_id="one")


def test_a_publisher_does_not_start_while_the_registry_is_away(stack: LocalStack, room: Room) -> None:
    with a_gateway(None, answers=[(503, "busy")]) as gateway:
        settings = settings_of(stack, registry_url=gateway.url)
        with Registry(settings.registry, retry_seconds=0.2) as away, pytest.raises(RegistryUnavailable):
            Publisher(settings, catalog=room.catalog, registry=away, service="dispatches", topics=[room.topic])


def test_each_record_reports_where_it_lies(room: Room) -> None:
    reports: list[Delivered | DeliveryError] = []
    with room.publisher() as publisher:
        for number in range(3):
            publisher.publish(room.topic, a_dispatch(), event_id=str(number), on_delivery=reports.append)
    stored = [
        f"{each.topic()}/{each.partition()}/{each.offset()}" for each in records_of(room.topic.name, room.settings)
    ]
    assert [report.coordinate for report in reports if isinstance(report, Delivered)] == stored


def test_a_record_that_the_broker_refuses_is_reported_to_its_caller(room: Room) -> None:
    limit_record_size(room.topic.name, room.settings, 500)
    reports: list[Delivered | DeliveryError] = []
    with room.publisher() as publisher:
        large = a_dispatch(van_id=LARGE)
        publisher.publish(room.topic, large, event_id="large", on_delivery=reports.append)
        publisher.flush(30)
    (report,) = reports
    assert isinstance(report, DeliveryError)
    assert (report.topic, report.event_id, report.code) == (room.topic.name, "large", "MSG_SIZE_TOO_LARGE")


def test_a_delivery_is_awaited_in_an_event_loop(room: Room) -> None:
    limit_record_size(room.topic.name, room.settings, 500)

    async def published(publisher: Publisher, event: events.ParcelDispatched, event_id: str) -> Delivered:
        delivery = publisher.delivery()
        publisher.publish(room.topic, event, event_id=event_id, on_delivery=delivery)
        return await asyncio.wait_for(delivery, 30)

    async def both(publisher: Publisher) -> None:
        with pytest.raises(DeliveryError, match="large was not delivered: MSG_SIZE_TOO_LARGE"):
            await published(publisher, a_dispatch(van_id=LARGE), "large")
        delivered = await published(publisher, a_dispatch(), "small")
        (record,) = records_of(room.topic.name, room.settings)
        assert delivered == Delivered(room.topic.name, record.partition() or 0, record.offset() or 0)

    with room.publisher() as publisher:
        asyncio.run(both(publisher))


def test_a_refused_record_that_nobody_asked_about_is_raised_by_the_next_flush(room: Room) -> None:
    limit_record_size(room.topic.name, room.settings, 500)
    with room.publisher() as publisher:
        publisher.publish(room.topic, a_dispatch(van_id=LARGE), event_id="large")
        with pytest.raises(DeliveryError, match=r"large was not delivered: MSG_SIZE_TOO_LARGE"):
            publisher.flush(30)
        publisher.publish(room.topic, a_dispatch(), event_id="small")
    assert len(records_of(room.topic.name, room.settings)) == 1


@pytest.mark.parametrize("gapless", [True, False])
def test_without_gaps_nothing_follows_a_refused_record(room: Room, gapless: bool) -> None:
    limit_record_size(room.topic.name, room.settings, 500)
    refusals: list[Delivered | DeliveryError] = []
    # The client itself refuses to go on, in whichever call.
    with suppress(DeliveryError), room.publisher(gapless=gapless, linger_ms=0) as publisher:
        publisher.publish(room.topic, a_dispatch(), event_id="first")
        publisher.flush(30)
        publisher.publish(room.topic, a_dispatch(van_id=LARGE), event_id="large", on_delivery=refusals.append)
        for number in range(10_000):
            publisher.publish(room.topic, a_dispatch(), event_id=str(number), on_delivery=lambda _: None)
            if refusals and number % 100 == 0:
                publisher.flush(30)
    assert isinstance(refusals[0], DeliveryError)
    assert refusals[0].code == "MSG_SIZE_TOO_LARGE"
    assert (len(records_of(room.topic.name, room.settings)) == 1) is gapless


def test_the_call_that_hears_of_a_fatal_error_tells_of_the_record_too(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit_record_size(room.topic.name, room.settings, 500)
    # Otherwise it may be the publisher's own thread that hears of it first.
    monkeypatch.setattr(Publisher, "_poll", lambda self: None)
    refusals: list[Delivered | DeliveryError] = []
    with pytest.raises(DeliveryError, match="[Gg]ap"), room.publisher(gapless=True) as publisher:
        publisher.publish(room.topic, a_dispatch(van_id=LARGE), event_id="large", on_delivery=refusals.append)
    assert [error.code for error in refusals if isinstance(error, DeliveryError)] == ["MSG_SIZE_TOO_LARGE"]


def test_a_callback_that_raises_is_heard_of(room: Room) -> None:
    def fail(report: Delivered | DeliveryError) -> None:
        nothing: dict[str, int] = {}
        nothing["the callback's own"]  # raised in C, where the exception itself is not made yet

    publisher = room.publisher()
    publisher.publish(room.topic, a_dispatch(), event_id="one", on_delivery=fail)
    with pytest.raises(KeyError, match="the callback's own") as raised:
        publisher.close()
    assert "fail" in [each.name for each in raised.traceback]


def test_a_callback_that_ends_its_thread_is_heard_of_and_reports_go_on(room: Room) -> None:
    reports: list[object] = []

    def leave(report: Delivered | DeliveryError) -> None:
        raise SystemExit(3)

    publisher = room.publisher()
    publisher.publish(room.topic, a_dispatch(), event_id="one", on_delivery=leave)
    with pytest.raises(SystemExit):
        for number in range(10_000):
            publisher.publish(room.topic, a_dispatch(), event_id=str(number), on_delivery=reports.append)
            publisher.flush(30)
    reported = Event()
    publisher.publish(room.topic, a_dispatch(), event_id="last", on_delivery=lambda _: reported.set())
    assert reported.wait(60), "nobody serves reports any more"
    publisher.close()


def test_ctrl_c_in_a_callback_ends_the_call_at_once(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(report: Delivered | DeliveryError) -> None:
        raise KeyboardInterrupt

    # So that it is called in this thread, the one in which Python has signals.
    monkeypatch.setattr(Publisher, "_poll", lambda self: None)
    with room.publisher() as publisher:
        publisher.publish(room.topic, a_dispatch(), event_id="one", on_delivery=interrupted)
        with pytest.raises(KeyboardInterrupt):
            publisher.flush(30)


def test_an_id_is_kept_whole(room: Room) -> None:
    with room.publisher() as publisher:
        publisher.publish(room.topic, a_dispatch(), event_id="order\0 17")
        publisher.dead_letter(room.topic, key=None, value=b"", headers={}, reason="R", error="a\0b", coordinate=None)
    [record], [letter] = records_of(room.topic.name, room.settings), records_of(f"{room.topic.name}.dlq", room.settings)
    assert dict(record.headers() or [])["ce_id"] == b"order\0 17"
    assert DeadLetter.of(letter).error == "a\0b"


def test_one_that_is_to_stop_waits_for_no_room(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publisher_module, "_CLOSE_SECONDS", 1.0)
    stop = Event()
    publisher = room.away().publisher(stop=stop)
    for number in range(100_000):
        publisher.publish(room.topic, a_dispatch(), event_id=str(number))
    with ThreadPoolExecutor(1) as other:
        one_more = other.submit(publisher.publish, room.topic, a_dispatch(), event_id="one more")
        stop.set()
        with pytest.raises(DeliveryError, match="one more was not delivered: _QUEUE_FULL: it is to stop"):
            one_more.result(30)
    with pytest.raises(DeliveryError, match="100000 records wait"):
        publisher.close()


def test_behind_a_fork_it_refuses(room: Room) -> None:
    with room.publisher() as publisher:
        told, tell = os.pipe()
        if (child := os.fork()) == 0:
            try:
                publisher.publish(room.topic, a_dispatch(), event_id="one")
            except DeliveryError as error:
                os.write(tell, str(error).encode())
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        os.close(tell)
        assert b"the publisher is of a process that forked: make one here" in os.read(told, 1_000)
        os.close(told)


def test_each_callback_is_called_though_all_of_them_raise(room: Room) -> None:
    called: list[object] = []

    def fail(report: Delivered | DeliveryError) -> None:
        called.append(report)
        raise LookupError(f"the {len(called)}th")

    publisher = room.publisher()
    for number in range(500):
        with suppress(LookupError):
            publisher.publish(room.topic, a_dispatch(), event_id=str(number), on_delivery=fail)
    with suppress(LookupError):
        publisher.close()
    stored = len(records_of(room.topic.name, room.settings))
    assert len(called) == stored > 0
    with pytest.raises(DeliveryError, match="the publisher is closed"):
        publisher.publish(room.topic, a_dispatch(), event_id="late")


def test_a_callback_may_publish_and_not_flush(room: Room) -> None:
    refused: list[str] = []

    def go_on(report: Delivered | DeliveryError) -> None:
        publisher.publish(room.topic, a_dispatch(), event_id="second")
        with pytest.raises(RuntimeError, match="not within an on_delivery"):
            publisher.flush(1)
        with pytest.raises(RuntimeError, match="not within an on_delivery"):
            publisher.close()
        refused.append("twice")

    with room.publisher() as publisher:
        for number in range(2_500):
            publisher.publish(room.topic, a_dispatch(), event_id=str(number), on_delivery=go_on)
    assert (len(records_of(room.topic.name, room.settings)), len(refused)) == (5_000, 2_500)


def test_what_is_given_up_when_brokers_are_away_is_reported(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as the queue takes; then one more, which waits for room."""
    monkeypatch.setattr(publisher_module, "_CLOSE_SECONDS", 1.0)
    reports: list[Delivered | DeliveryError] = []
    publisher = room.away().publisher()
    for number in range(100_000):
        publisher.publish(room.topic, a_dispatch(), event_id=str(number), on_delivery=reports.append)
    with ThreadPoolExecutor(1) as other:
        one_more = other.submit(publisher.publish, room.topic, a_dispatch(), event_id="one more")
        with pytest.raises(DeliveryError, match="100000 records wait after 1.0 s, and are given up"):
            publisher.close()
        with pytest.raises(DeliveryError, match="one more was not delivered: _STATE: the publisher is closed"):
            one_more.result(30)
    assert {each.code for each in reports if isinstance(each, DeliveryError)} == {"_PURGE_QUEUE"}
    assert len(reports) == 100_000


def test_what_is_handed_over_while_another_thread_closes_is_on_the_topic(room: Room) -> None:
    publisher = room.publisher()

    class ClosedFirst:
        """The producer, to which a record comes when the publisher has been closed meanwhile."""

        def __init__(self, producer: Any) -> None:
            self._producer = producer

        def __getattr__(self, name: str) -> Any:
            return getattr(self._producer, name)

        def produce(self, *arguments: Any, **options: Any) -> None:
            with ThreadPoolExecutor(1) as other:
                other.submit(publisher.close).result()
            self._producer.produce(*arguments, **options)

    publisher._producer = ClosedFirst(publisher._producer)  # type: ignore[assignment]
    publisher.publish(room.topic, a_dispatch(), event_id="one")
    assert len(records_of(room.topic.name, room.settings)) == 1


def test_one_error_names_all_records_that_failed(room: Room) -> None:
    limit_record_size(room.topic.name, room.settings, 500)
    with room.publisher() as publisher:
        for name in ("first", "second", "third"):
            publisher.publish(room.topic, a_dispatch(van_id=LARGE), event_id=name)
        with pytest.raises(DeliveryError) as told:
            publisher.flush(30)
    assert told.value.event_id == "first"
    assert str(told.value).endswith("(2 more failed: second, third)")


def test_of_what_fails_with_another_record_that_one_is_named_first(room: Room) -> None:
    limit_record_size(room.topic.name, room.settings, 500)
    with pytest.raises(DeliveryError) as told, room.publisher(gapless=True) as publisher:
        publisher.publish(room.topic, a_dispatch(van_id=LARGE), event_id="large")
        for number in range(1_000_000):
            publisher.publish(room.topic, a_dispatch(), event_id=str(number))
    assert (told.value.event_id, told.value.code) == ("large", "MSG_SIZE_TOO_LARGE")
    with pytest.raises(DeliveryError, match="event more was not delivered: _STATE: the publisher is closed"):
        publisher.publish(room.topic, a_dispatch(), event_id="more")


def test_one_that_can_not_go_on_says_so_each_time(room: Room) -> None:
    limit_record_size(room.topic.name, room.settings, 500)
    publisher = room.publisher(gapless=True)
    publisher.publish(room.topic, a_dispatch(van_id=LARGE), event_id="large")
    with pytest.raises(DeliveryError, match="event large was not delivered: MSG_SIZE_TOO_LARGE"):
        publisher.flush(30)
    wait_for(lambda: publisher._fatal is not None, "the fatal error, which another thread may have served")
    with suppress(DeliveryError):
        publisher.flush(30)
    for name in ("one", "two"):
        with pytest.raises(
            DeliveryError, match=f"event {name} was not delivered: .*Message size too large.*publisher anew"
        ):
            publisher.publish(room.topic, a_dispatch(), event_id=name)
    publisher.close()


@pytest.mark.parametrize("name", ["ce_id", "ce_source", "content-type", "ce_redrivenfrom"])
def test_headers_by_which_events_are_told_apart_are_the_publishers(name: str, room: Room) -> None:
    with room.publisher() as publisher, pytest.raises(ValueError, match=f"leave {name} out of headers"):
        publisher.publish(room.topic, a_dispatch(), event_id="one", headers={name: b"x", "traceparent": b"y"})


@pytest.mark.parametrize("is_to_stop", [False, True])
def test_a_full_queue_blocks_and_drops_nothing(room: Room, is_to_stop: bool) -> None:
    event, count = a_dispatch(), 120_000  # more than the queue's 100,000
    stop = Event()
    if is_to_stop:
        stop.set()
    with room.publisher(stop=stop) as publisher:
        for number in range(count):
            publisher.publish(room.topic, event, event_id=str(number))
    ids = [dict(record.headers() or [])["ce_id"] for record in records_of(room.topic.name, room.settings)]
    assert ids == [str(number).encode() for number in range(count)]


def test_an_event_that_does_not_fit_is_refused_before_it_is_sent(room: Room) -> None:
    with room.publisher() as publisher, pytest.raises(EncodeError, match="weight_grams"):
        publisher.publish(room.topic, a_dispatch(weight_grams=2**40), event_id="one")
    assert records_of(room.topic.name, room.settings) == []


def test_of_a_file_nothing_is_sent_unless_each_line_fits_its_schema_and_topic(room: Room) -> None:
    fitting, too_large = ("one", a_dispatch()), ("two", a_dispatch(weight_grams=2**40))
    to = (room.settings, room.catalog, room.topic, "dispatches")
    with pytest.raises(DeployError, match=r"event 2: .*weight_grams.*\(nothing is published\)"):
        send(*to, [fitting, too_large])
    assert records_of(room.topic.name, room.settings) == []
    # What comes line by line is sent as it comes.
    with pytest.raises(DeployError, match=r"weight_grams.*\(1 events are published\)"):
        send(*to, iter([fitting, too_large]))
    assert len(records_of(room.topic.name, room.settings)) == 1


def test_what_brokers_refuse_is_not_told_as_published(room: Room) -> None:
    limit_record_size(room.topic.name, room.settings, 500)
    events = [(str(number), a_dispatch(van_id=LARGE if number in (2, 30) else "")) for number in range(1, 41)]
    to = (room.settings, room.catalog, room.topic, "dispatches")
    with pytest.raises(DeployError) as told:
        send(*to, iter(events))
    published = len(records_of(room.topic.name, room.settings))
    assert str(told.value).startswith(
        f"{published} events are published, and {40 - published} are not, by their number "
    )
    assert "MSG_SIZE_TOO_LARGE" in str(told.value)


def test_of_lines_without_end_none_is_sent_long_after_one_that_brokers_refuse(room: Room) -> None:
    limit_record_size(room.topic.name, room.settings, 500)
    endless = ((str(number), a_dispatch(van_id="" if number else LARGE)) for number in itertools.count())
    with pytest.raises(DeployError, match=r"are not, by their number 1\b"):
        send(room.settings, room.catalog, room.topic, "dispatches", endless)


def test_of_events_that_nobody_takes_none_is_told_as_published(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publisher_module, "_CLOSE_SECONDS", 1.0)
    monkeypatch.setattr(send_module, "_FLUSH_SECONDS", 1.0)
    with pytest.raises(
        DeployError, match=r"0 events are published, and 2 are not, by their number 1, 2: .*_PURGE_QUEUE"
    ):
        send(
            room.away().settings,
            room.catalog,
            room.topic,
            "dispatches",
            iter([("one", a_dispatch()), ("two", a_dispatch())]),
        )


def test_a_record_as_large_as_its_topic_takes_is_published_and_one_byte_more_is_refused(room: Room) -> None:
    limit = room.catalog.topic(room.topic.name).most_record_bytes
    outlet = Outlet.of(
        room.catalog.topic(room.topic.name), room.catalog.schema(room.topic.name), room.registry, "/services/dispatches"
    )
    key, value, headers = outlet.record(a_dispatch(van_id=""), "one")
    # The length of a text of more than 8,191 bytes takes two bytes more than that of an empty one, of more than 1,048,575 three.
    most = secrets.token_hex(limit)[: limit - record_size(key, value, headers) - 2]
    with room.publisher() as publisher:
        publisher.publish(room.topic, a_dispatch(van_id=most), event_id="one")
        publisher.flush(30)
        with pytest.raises(TooLong, match=f"the record has {limit + 1} bytes, .*{room.topic.name} at most {limit}"):
            publisher.publish(room.topic, a_dispatch(van_id=most + "x"), event_id="one")
        with pytest.raises(TooLong, match=str(limit)):
            publisher.publish(room.topic, a_dispatch(), event_id="two", headers={"traceparent": b"x" * limit})
    (record,) = records_of(room.topic.name, room.settings)
    assert record_size(record.key(), record.value(), headers_of(record)) == limit


@pytest.mark.parametrize(
    "headers", [[("ce_causationid", None)] * 50_000, [("x", b"\xff" * 1_000_000)]], ids=["many", "one"]
)
def test_a_record_that_is_kept_fits_into_its_dead_letters(room: Room, headers: list[tuple[str, bytes | None]]) -> None:
    value = secrets.token_bytes(KEPT_BYTES - record_size(b"key", None, headers))
    with room.publisher() as publisher:
        publisher.dead_letter(
            room.topic, key=b"key", value=value, headers=headers, reason="R", error="e" * 5_000, coordinate="t/0/1"
        )
    (letter,) = records_of(f"{room.topic.name}.dlq", room.settings)
    found = DeadLetter.of(letter)
    assert (found.key, found.value, found.original_headers(), found.stump_bytes) == (b"key", value, headers, None)
    assert found.error == "e" * 1_000


def test_of_a_larger_record_the_dead_letters_have_a_stump(room: Room) -> None:
    value = secrets.token_bytes(KEPT_BYTES)
    coordinate = f"{room.topic.name}/1/42"
    claim = ("__connect.errors.record.bytes", b"7")
    with room.publisher() as publisher:
        for body in (value, None):
            publisher.dead_letter(
                room.topic,
                key=b"key" if body else b"k" * KEPT_BYTES,
                value=body,
                headers=[("ce_id", b"one"), claim],
                reason="TooLong",
                error="e",
                coordinate=coordinate,
            )
    of_value, of_key = map(DeadLetter.of, records_of(f"{room.topic.name}.dlq", room.settings))
    assert (of_value.key, of_value.value, of_value.original_headers()) == (None, None, [])
    assert (str(of_value.origin), of_value.reason) == (coordinate, "TooLong")
    assert of_value.stump_bytes == record_size(b"key", value, [("ce_id", b"one"), claim])
    assert (of_value.value_sha256, of_key.value_sha256) == (hashlib.sha256(value).hexdigest(), None)
    assert of_key.stump_bytes is not None


def test_a_dead_letter_is_the_record_as_it_was_with_the_reason(room: Room) -> None:
    coordinate = f"{room.topic.name}/1/42"
    with room.publisher() as publisher:
        publisher.dead_letter(
            room.topic,
            key=b"key",
            value=b"not avro",
            headers=[("ce_id", b"one"), ("traceparent", b"00-ab-cd-01"), ("odd", None)],
            reason="ForeignBody",
            error="the body is text",
            coordinate=coordinate,
            timestamp_ms=1_700_000_000_000,
        )
    (letter,) = records_of(f"{room.topic.name}.dlq", room.settings)
    assert (letter.key(), letter.value(), letter.timestamp()[1]) == (b"key", b"not avro", 1_700_000_000_000)
    headers = letter.headers()
    assert isinstance(headers, list)
    assert dict(headers) == {
        "ce_id": coordinate.encode(),
        "ce_causationid": b"one",
        "traceparent": b"00-ab-cd-01",
        "odd": None,
        "__connect.errors.topic": room.topic.name.encode(),
        "__connect.errors.partition": b"1",
        "__connect.errors.offset": b"42",
        "__connect.errors.connector.name": b"dispatches",
        "__connect.errors.stage": b"VALUE_CONVERTER",
        "__connect.errors.exception.class.name": b"ForeignBody",
        "__connect.errors.exception.message": b"the body is text",
    }


def test_only_a_producer_or_consumer_of_a_topic_writes_its_dead_letters(room: Room) -> None:
    stranger = Publisher(room.settings, catalog=room.catalog, registry=room.registry, service="readings", topics=[])
    with stranger, pytest.raises(NotAProducer):
        stranger.dead_letter(room.topic, key=None, value=b"", headers={}, reason="R", error="e", coordinate=None)


def test_what_is_not_delivered_in_time_is_said(room: Room) -> None:
    with room.publisher() as publisher:
        publisher.publish(room.topic, a_dispatch(), event_id="one")
        with pytest.raises(DeliveryError, match="1 records wait"):
            publisher.flush(0)
    assert len(records_of(room.topic.name, room.settings)) == 1

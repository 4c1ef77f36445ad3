"""`Publisher`: the only door to a topic."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from types import TracebackType
from typing import Any, Self

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from pydantic import BaseModel

from contracts.definitions.catalog import Catalog, load_catalog
from contracts.definitions.topic import TopicContract
from contracts.delivery import Delivered, Delivery, OnDelivery, Outcomes
from contracts.errors import DeliveryError, NotAProducer, RegistryMadeAnew, TooLong
from contracts.handle import E, Topic
from contracts.records.codec import Codec
from contracts.records.dead_letter_headers import REDRIVEN_FROM, Header, dead_letter_headers, stump_headers
from contracts.records.limits import KEPT_BYTES, record_size
from contracts.servers.own_schema import OwnSchema
from contracts.servers.producer_config import PRODUCER_CONFIG, UNBROKEN_SECONDS
from contracts.servers.registry import Registry
from contracts.settings import Settings

_CONFIG = {
    **PRODUCER_CONFIG,
    "queue.buffering.max.kbytes": 131_072,  # 128 MiB; the default is 1 GiB
    # No limit: a record that gives up while younger ones go through would leave a gap that a restart can't see.
    # An outage fills the queue instead, and then blocks.
    "delivery.timeout.ms": 0,
}
_CLOSE_SECONDS = 15.0
"""How long `close` waits for brokers that are away; the records given up then are the youngest. With the reports it is less than a process has to stop."""

_ROOM_SECONDS = 2.0
"""How long a publisher that is to stop waits for room in a full queue."""

_REPORT_SECONDS = 3.0
"""How long the reports of records that are given up, or fail with another, may take."""

_CONSEQUENCES = {"_PURGE_QUEUE", "_PURGE_INFLIGHT", "_FATAL", "_GAPLESS_GUARANTEE"}
"""Codes of records that fail because another did, or that were given up."""

_TOLD = 20
"""Of so many failed records at most one error names the ids."""

_LOOK_SECONDS = 1.0
"""From one look whether a schema is to be checked again to the next."""

_SERVED_EVERY = 1000
"""So many records are handed over before their sender serves delivery reports: a thread of its own would fight it for Python's
lock over each of them."""

_OWN_HEADERS = {"ce_id", "ce_type", "ce_source", "ce_specversion", "ce_time", "content-type", REDRIVEN_FROM}
"""By which readers tell events apart: a copy of another record's would make them leave this one out."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Outlet:
    """What does not change from event to event of one topic that `source`, a CloudEvents source, sends to."""

    contract: TopicContract
    codec: Codec
    own: OwnSchema
    headers: tuple[Header, ...]
    nested: bool

    @classmethod
    def of(cls, contract: TopicContract, schema: str, registry: Registry, source: str) -> Self:
        """Registers `schema`, the topic's current one: raises what `Registry.register` raises."""
        own = OwnSchema(registry, contract.subject, schema)
        # Headers are bytes: the client cuts a text at its first NUL.
        headers: tuple[Header, ...] = (
            ("ce_type", contract.name.encode()),
            ("ce_source", source.encode()),
            ("ce_specversion", b"1.0"),
            ("content-type", b"application/avro"),
        )
        codec = Codec({own.id: schema}.__getitem__)
        return cls(contract, codec, own, headers, nested=schema.count('"record"') > 1)

    def record(
        self,
        event: BaseModel,
        event_id: str,
        occurred_at: datetime | None = None,
        headers: Mapping[str, bytes] | None = None,
    ) -> tuple[bytes | None, bytes, list[Header]]:
        """Key, value and headers of an event. Raises EncodeError if it does not fit its schema, TooLong if it does not fit its topic."""
        fields = vars(event)
        key = None if self.contract.key is None else str(fields[self.contract.key]).encode()
        at = occurred_at or fields[self.contract.occurred_at]
        if self.nested:
            fields = _plain(event)
        value = self.codec.encode(self.own.id, fields)
        if at.tzinfo is not UTC:
            at = at.astimezone(UTC)
        time = at.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"
        sent = [
            ("ce_id", event_id.encode()),
            ("ce_time", time.encode()),
            *self.headers,
            *(headers.items() if headers else ()),
        ]
        size, limit = record_size(key, value, sent), self.contract.most_record_bytes
        if size > limit:
            raise TooLong(f"the record has {size} bytes, and those of {self.contract.name} at most {limit}")
        return key, value, sent


class Publisher:
    """Publishes the events of `topics`; safe to use from several threads; close it, or use it in a `with`.

    A record is delivered once (idempotent producer, `acks=all`) or reported as DeliveryError: to its `on_delivery`, else by
    the next `publish`, `flush` or `close`, which names the records that failed until then. With `gapless` (librdkafka's
    `enable.gapless.guarantee`) nothing follows a record that brokers refuse: what was handed over after it fails, too, and a publisher must be made anew. A record waits up to `linger_ms` milliseconds for others to travel with. Records carry the
    CloudEvents headers of the Kafka protocol binding 1.0.2. Without a `catalog` it reads the shipped one; without a `registry` it has a
    client of its own.

    Raises NotAProducer if a topic's contract does not list `service`; SchemaIncompatible, RegistryRefused or
    RegistryUnavailable if its current schema can't be registered. When the registry has another id for it later, every
    `publish`, `flush` and `close` raises RegistryMadeAnew. Once `stop` is set, `publish` waits no more than 2 s for room, and raises DeliveryError then.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        service: str,
        topics: Sequence[Topic[Any]],
        catalog: Catalog | None = None,
        registry: Registry | None = None,
        linger_ms: int = PRODUCER_CONFIG["linger.ms"],
        gapless: bool = False,
        stop: threading.Event | None = None,
    ) -> None:
        self._service = service
        self._catalog = catalog = catalog or load_catalog()
        contracts = [catalog.topic(topic.name) for topic in topics]
        for contract in contracts:
            if service not in contract.producers:
                raise NotAProducer(f"{contract.name} is published by {', '.join(contract.producers)}, not by {service}")
        with ExitStack() as opened:
            its = registry or opened.enter_context(Registry(settings.registry))
            self._outlets = {
                contract.name: Outlet.of(contract, catalog.schema(contract.name), its, f"/services/{service}")
                for contract in contracts
            }
            self._own_registry = opened.pop_all()
        self._outcomes: Outcomes | None = None
        self._failures: deque[BaseException] = deque()
        self._made_anew: RegistryMadeAnew | None = None
        self._fatal: DeliveryError | None = None
        self._stop = stop or threading.Event()
        self._pid = os.getpid()
        self._unserved = 0
        self._is_closed = self._has_given_up = False
        self._closing = threading.Event()
        self._thread = threading.local()
        self._producer = Producer(
            {
                **_CONFIG,
                **settings.kafka.client_config(),
                "client.id": service,
                "linger.ms": linger_ms,
                # Named, it makes librdkafka warn at each start.
                **({"enable.gapless.guarantee": True} if gapless else {}),
            },
            logger=_log,
        )
        # Delivery reports come only while somebody polls; a sender that pauses doesn't.
        self._poller = threading.Thread(target=self._poll, name="publisher", daemon=True)
        self._poller.start()
        # Not joined: it may wait for a registry that is away.
        threading.Thread(target=self._check_schemas, name="publisher-schemas", daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except DeliveryError as later:
            if error is None or later.code not in _CONSEQUENCES:
                raise
            error.add_note(str(later))

    def publish(
        self,
        topic: Topic[E],
        event: E,
        *,
        event_id: str,
        occurred_at: datetime | None = None,
        headers: Mapping[str, bytes] | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> None:
        """Hand `event` to the local queue; blocks while that is full.

        `event_id` becomes `ce_id`, `occurred_at` (aware; default: the field that the contract names) `ce_time`;
        `headers` are added as they are, e.g. `traceparent`. The key is the text of the contract's key field.

        Raises EncodeError or TooLong if the event does not fit its schema or its topic, ValueError for a header that the publisher itself
        gives, or an earlier event's DeliveryError: then `event` was not handed over.
        """
        if headers and (own := _OWN_HEADERS.intersection(headers)):
            raise ValueError(f"leave {', '.join(sorted(own))} out of headers: the publisher gives each event its own")
        key, value, sent = self._outlet(topic).record(event, event_id, occurred_at, headers)
        self._send(topic.name, key, value, sent, event_id, on_delivery)

    def check(self, topic: Topic[E], event: E, *, event_id: str) -> None:
        """Send nothing; raises EncodeError or TooLong where `publish` would."""
        self._outlet(topic).record(event, event_id)

    def dead_letter(
        self,
        topic: Topic[Any],
        *,
        key: bytes | None,
        value: bytes | None,
        headers: Iterable[Header] | Mapping[str, bytes],
        reason: str,
        error: str,
        coordinate: str | None,
        timestamp_ms: int | None = None,
        stage: str = "VALUE_CONVERTER",
        on_delivery: OnDelivery | None = None,
    ) -> None:
        """Put a record of `topic` that can't be handled on `<topic>.dlq`, as it was, with the reason; of one with more than
        `contracts.records.limits.KEPT_BYTES` only a stump: its size and its value's SHA-256.

        `reason` is a name (an error's class), `error` a sentence, `coordinate` the record's `topic/partition/offset`, None if it
        never was a record; `timestamp_ms` its timestamp; `stage` one of Kafka Connect's
        (org.apache.kafka.connect.runtime.errors.Stage), whose header names these are. `ce_id` becomes the coordinate; the
        record's own is kept as `ce_causationid`.

        Raises NotAProducer if the topic's contract names this service neither as producer nor as consumer.
        """
        contract = self._catalog.topic(topic.name)
        if self._service not in (*contract.producers, *contract.consumers):
            raise NotAProducer(f"{self._service} neither publishes nor consumes {topic.name}")
        original: list[Header] = list(headers.items() if isinstance(headers, Mapping) else headers)
        size = record_size(key, value, original)
        rest: list[Header] = []
        if size > KEPT_BYTES:
            rest = stump_headers(size, None if value is None else hashlib.sha256(value).hexdigest())
            key, value, original = None, None, []
        added = dead_letter_headers(original, topic.name, self._service, stage, reason, error, coordinate)
        self._send(
            contract.dead_letter_topic,
            key,
            value,
            added + rest,
            coordinate,
            on_delivery,
            timestamp_ms or 0,
        )

    def delivery(self) -> Delivery:
        """What one record's `on_delivery` can be where it is awaited, in the running event loop:

            delivery = publisher.delivery()
            publisher.publish(topic, event, event_id=event_id, on_delivery=delivery)
            delivered = await delivery

        `publish` itself blocks the loop while the queue is full. Raises RuntimeError where no loop runs.
        """
        outcomes = self._outcomes
        loop = asyncio.get_running_loop()
        if outcomes is None or outcomes.loop is not loop:
            self._outcomes = outcomes = Outcomes(loop)
        return Delivery(outcomes)

    def flush(self, timeout_seconds: float) -> None:
        """Wait until everything published so far is delivered, by other threads, too: one that publishes on and on keeps it waiting.

        Raises DeliveryError if a record without `on_delivery` was not, or if some still wait after `timeout_seconds`; what an `on_delivery`
        raised; RuntimeError in an `on_delivery`, or in a signal handler that came in the midst of another call.
        """
        left = self._flushed(timeout_seconds)
        self._raise_failure()
        if left:
            raise DeliveryError("all topics", None, "_TIMED_OUT", f"{left} records wait after {timeout_seconds} s")

    def close(self) -> None:
        """Flush and stop; the publisher can't be used afterwards. What brokers have not taken within 15 s is given up, and reported: `_PURGE_QUEUE`
        was never sent, and `_PURGE_INFLIGHT` may be there all the same. Raises as `flush` does.
        """
        self._refuse_nested()
        if self._is_closed:
            return
        self._is_closed = True
        try:
            if left := self._flushed(_CLOSE_SECONDS):
                self._give_up(left)
        finally:
            self._closing.set()
            self._poller.join()
            self._own_registry.close()
        self._raise_failure()

    def _give_up(self, left: int) -> None:
        """Let the reports of so many records come: they have failed."""
        self._has_given_up = True
        what = f"{left} records wait after {_CLOSE_SECONDS} s, and are given up"
        self._failures.appendleft(DeliveryError("all topics", None, "_TIMED_OUT", what))
        self._producer.purge()
        self._flushed(_REPORT_SECONDS)

    def _flushed(self, seconds: float) -> int:
        """Wait so long for reports; how many records have none yet."""
        self._refuse_nested()
        deadline = time.monotonic() + seconds
        left = 1
        while left:
            pause = deadline - time.monotonic()
            with self._serving():
                left = self._producer.flush(min(UNBROKEN_SECONDS, max(0.0, pause)))
            if pause <= 0:
                return len(self._producer)
        return 0

    def _refuse_nested(self) -> None:
        if self._is_serving():
            # Two calls that serve reports, one within the other, would abort the process.
            raise RuntimeError(
                "not within an on_delivery, nor in a signal handler: let it set a flag, and flush or close afterwards"
            )

    def _is_serving(self) -> bool:
        return getattr(self._thread, "serves", False)

    @contextmanager
    def _serving(self) -> Iterator[None]:
        """While this thread serves delivery reports. What the client raises is kept: who serves it must go on, and the caller must hear of it."""
        self._thread.serves = True
        try:
            yield
        except Exception as error:  # noqa: BLE001
            failure = _of_the_client(error)
            self._failures.append(failure)
            if isinstance(failure, DeliveryError):
                self._fatal = self._fatal or failure
        finally:
            self._thread.serves = False
        if (interrupt := vars(self._thread).pop("interrupt", None)) is not None:
            raise interrupt

    def _outlet(self, topic: Topic[Any]) -> Outlet:
        found = self._outlets.get(topic.name)
        if found is None:
            raise NotAProducer(f"this publisher of {self._service} was not made for {topic.name}")
        return found

    def _send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: list[Header],
        event_id: str | None,
        on_delivery: OnDelivery | None,
        timestamp_ms: int = 0,
    ) -> None:
        if os.getpid() != self._pid:
            raise DeliveryError(topic, event_id, "_STATE", "the publisher is of a process that forked: make one here")
        # Within an `on_delivery` those of others are not its own: they come out of the next call.
        if (self._failures or self._made_anew is not None) and not self._is_serving():
            if self._fatal is not None:
                self._flushed(_REPORT_SECONDS)  # which record it was, its report says
            self._raise_failure()
        report, until = partial(self._take_report, event_id, on_delivery), 0.0
        while True:
            # What an `on_delivery` publishes belongs to what is flushed.
            if self._is_closed and (self._has_given_up or not self._is_serving()):
                raise DeliveryError(topic, event_id, "_STATE", "the publisher is closed")
            try:
                self._producer.produce(topic, value, key, headers=headers, timestamp=timestamp_ms, on_delivery=report)
                break
            except BufferError as full:
                if self._is_serving():
                    raise DeliveryError(
                        topic, event_id, "_QUEUE_FULL", "nothing leaves the queue within an on_delivery"
                    ) from full
                if self._stop.is_set():
                    until = until or time.monotonic() + _ROOM_SECONDS
                    if time.monotonic() > until:
                        what = f"it is to stop, and brokers have taken nothing for {_ROOM_SECONDS:g} s"
                        raise DeliveryError(topic, event_id, "_QUEUE_FULL", what) from full
                self._serve(UNBROKEN_SECONDS)
            except KafkaException as failure:
                raise self._cause(topic, event_id, failure.args[0]) from failure
        self._unserved += 1
        if self._is_serving():
            return
        if self._is_closed:
            # By another thread, whose `close` may have flushed before this record.
            if left := self._flushed(_CLOSE_SECONDS):
                self._give_up(left)
            self._raise_failure()
        elif self._unserved >= _SERVED_EVERY:
            self._unserved = 0
            self._serve(0)

    def _cause(self, topic: str, event_id: str | None, error: KafkaError) -> DeliveryError:
        """Why a record is not handed over. Raises what records before it failed of, if that is why."""
        if error.code() == KafkaError._FATAL and not self._is_serving():
            self._flushed(_REPORT_SECONDS)
            self._raise_failure()
        if error.code() == KafkaError._FATAL and self._fatal is not None:  # told before
            what = f"{self._fatal.message}. Make the publisher anew"
            return DeliveryError(topic, event_id, self._fatal.code, what)
        return _delivery_error(topic, event_id, error)

    def _take_report(
        self, event_id: str | None, on_delivery: OnDelivery | None, failure: KafkaError | None, message: Message
    ) -> None:
        """Nothing is raised into the client, which would lose what it was and go on."""
        try:
            topic = message.topic() or ""
            error = None if failure is None else _delivery_error(topic, event_id, failure)
            if on_delivery is None:
                if error is not None:
                    self._failures.append(error)
            elif error is not None:
                on_delivery(error)
            else:
                offset = message.offset()
                on_delivery(Delivered(topic, message.partition() or 0, -1 if offset is None else offset))
        except Exception as raised:  # noqa: BLE001
            self._failures.append(raised)
        except BaseException as raised:  # noqa: BLE001
            if threading.current_thread() is self._poller:
                self._failures.append(raised)
            else:
                self._thread.interrupt = raised

    def _raise_failure(self) -> None:
        failures: list[BaseException] = []
        with suppress(IndexError):  # another thread may take them meanwhile
            while self._failures:
                failures.append(self._failures.popleft())
        failures.sort(key=lambda each: isinstance(each, DeliveryError) and each.code in _CONSEQUENCES)
        if self._made_anew is not None:  # which holds until a restart
            raise RegistryMadeAnew(f"{self._made_anew}{_and_more(failures)}") from self._made_anew
        if not failures:
            return
        first, more = failures[0], _and_more(failures[1:])
        if not more:
            raise first
        if isinstance(first, DeliveryError):
            raise DeliveryError(first.topic, first.event_id, first.code, f"{first.message}{more}") from first
        first.add_note(more.strip())
        raise first

    def _check_schemas(self) -> None:
        while not self._closing.wait(_LOOK_SECONDS):
            try:
                for outlet in self._outlets.values():
                    outlet.own.check()
            except RegistryMadeAnew as error:
                self._made_anew = error
            except RuntimeError:  # the registry's client is closed
                return

    def _poll(self) -> None:
        while not self._closing.is_set():
            self._serve(UNBROKEN_SECONDS)

    def _serve(self, timeout_seconds: float) -> None:
        with self._serving():
            self._producer.poll(timeout_seconds)


def _and_more(failures: Sequence[BaseException]) -> str:
    """Which others failed, in parentheses; empty if none did."""
    if not failures:
        return ""
    ids = [each.event_id or each.message if isinstance(each, DeliveryError) else repr(each) for each in failures]
    rest = f" and {len(ids) - _TOLD} more" if len(ids) > _TOLD else ""
    return f" ({len(ids)} more failed: {', '.join(ids[:_TOLD])}{rest})"


def _of_the_client(error: Exception) -> Exception:
    """A client that can't go on says so by an exception of its own."""
    failure = error.args[0] if isinstance(error, KafkaException) and error.args else None
    if isinstance(failure, KafkaError) and failure.fatal():
        return _delivery_error("all topics", None, failure)
    return error


def _delivery_error(topic: str, event_id: str | None, failure: KafkaError) -> DeliveryError:
    return DeliveryError(topic, event_id, failure.name(), failure.str())


def _plain(value: object) -> Any:
    """Nested models as dicts; everything else as it is."""
    if isinstance(value, BaseModel):
        return {name: _plain(field) for name, field in vars(value).items()}
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value

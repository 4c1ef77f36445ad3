"""`Publisher`: the only door to a topic."""

from __future__ import annotations

import asyncio
import hashlib
import logging
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
from contracts.servers.producer_config import PRODUCER_CONFIG
from contracts.servers.registry import Registry
from contracts.settings import Settings

_CONFIG = {
    **PRODUCER_CONFIG,
    "queue.buffering.max.kbytes": 131_072,  # 128 MiB; the default is 1 GiB
    # No limit: a record that gives up while younger ones go through would leave a gap that a restart can't see.
    # An outage fills the queue instead, and then blocks.
    "delivery.timeout.ms": 0,
}
_CLOSE_SECONDS = 30.0
"""How long `close` waits for brokers that are away; the records given up then are the youngest."""

_REPORT_SECONDS = 5.0
"""How long the reports of records that are given up may take."""

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
        headers: tuple[Header, ...] = (
            ("ce_type", contract.name),
            ("ce_source", source),
            ("ce_specversion", "1.0"),
            ("content-type", "application/avro"),
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
        sent = [("ce_id", event_id), ("ce_time", time), *self.headers, *(headers.items() if headers else ())]
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
    `publish`, `flush` and `close` raises RegistryMadeAnew.
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
        self._failures: deque[Exception] = deque()
        self._made_anew: RegistryMadeAnew | None = None
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
                "enable.gapless.guarantee": gapless,
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
        self.close()

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
        outlet = self._outlets.get(topic.name)
        if outlet is None:
            raise NotAProducer(f"this publisher of {self._service} was not made for {topic.name}")
        key, value, sent = outlet.record(event, event_id, occurred_at, headers)
        self._send(topic.name, key, value, sent, event_id, on_delivery)

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
        """Wait until everything published so far is delivered.

        Raises DeliveryError if a record without `on_delivery` was not, or if some still wait after `timeout_seconds`; what an `on_delivery`
        raised; RuntimeError in an `on_delivery`, or in a signal handler that came in the midst of another call.
        """
        left = self._flushed(timeout_seconds)
        self._raise_failure()
        if left:
            raise DeliveryError("all topics", None, "_TIMED_OUT", f"{left} records wait after {timeout_seconds} s")

    def close(self) -> None:
        """Flush and stop; the publisher can't be used afterwards. What brokers have not taken within 30 s is given up, and reported: `_PURGE_QUEUE`
        was never sent, and `_PURGE_INFLIGHT` may be there all the same. Raises as `flush` does.
        """
        self._refuse_nested()
        if self._is_closed:
            return
        self._is_closed = True
        try:
            if left := self._flushed(_CLOSE_SECONDS):
                self._give_up(left)
            self._raise_failure()
        finally:
            self._closing.set()
            self._poller.join()
            self._own_registry.close()

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
                left = self._producer.flush(max(0.0, pause))
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
        """While this thread serves delivery reports. What a caller's `on_delivery` raises is kept: who serves it must go on, and the caller must
        hear of it.
        """
        self._thread.serves = True
        try:
            yield
        except Exception as error:  # noqa: BLE001
            self._failures.append(_of_the_client(error))
        finally:
            self._thread.serves = False

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
        # Within an `on_delivery` those of others are not its own: they come out of the next call.
        if (self._failures or self._made_anew is not None) and not self._is_serving():
            self._raise_failure()
        report = (
            partial(self._keep_failure, event_id) if on_delivery is None else partial(_report, event_id, on_delivery)
        )
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
                self._serve(0.1)
            except KafkaException as failure:
                raise _delivery_error(topic, event_id, failure.args[0]) from failure
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

    def _keep_failure(self, event_id: str | None, failure: KafkaError | None, message: Message) -> None:
        if failure is not None:
            self._failures.append(_delivery_error(message.topic() or "", event_id, failure))

    def _raise_failure(self) -> None:
        if self._made_anew is not None:  # which holds until a restart
            raise self._made_anew
        failures = []
        with suppress(IndexError):  # another thread may take them meanwhile
            while self._failures:
                failures.append(self._failures.popleft())
        if len(failures) > 1:
            ids = [each.event_id or "" if isinstance(each, DeliveryError) else repr(each) for each in failures[1:]]
            more = f" and {len(ids) - _TOLD} more" if len(ids) > _TOLD else ""
            failures[0].add_note(f"{len(ids)} more failed: {', '.join(ids[:_TOLD])}{more}")
        if failures:
            raise failures[0]

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
            self._serve(0.1)

    def _serve(self, timeout_seconds: float) -> None:
        with self._serving():
            self._producer.poll(timeout_seconds)


def _report(event_id: str | None, on_delivery: OnDelivery, failure: KafkaError | None, message: Message) -> None:
    topic = message.topic() or ""
    if failure is not None:
        on_delivery(_delivery_error(topic, event_id, failure))
    else:
        offset = message.offset()
        on_delivery(Delivered(topic, message.partition() or 0, -1 if offset is None else offset))


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

"""`Subscriber`: the typed events of a topic, for whoever wants them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Generic, Literal, Self, TypeAlias

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from pydantic import ValidationError

from contracts.catalog import Catalog, load_catalog
from contracts.codec import Codec
from contracts.errors import ConsumeError, DecodeError, Malformed, RegistryUnavailable, Truncated
from contracts.handle import E, Topic
from contracts.headers import header_of
from contracts.registry import Registry
from contracts.settings import Settings

_CONFIG = {
    "isolation.level": "read_committed",
    "enable.auto.commit": True,  # commits what is stored: periodically, when partitions go elsewhere, and on close
    "auto.commit.interval.ms": 1000,
    "enable.auto.offset.store": False,  # a position is stored when its record has been handled
    "queued.max.messages.kbytes": 16_384,
}
_POLL_SECONDS = 0.2
_REGISTRY_SECONDS = 5.0
"""How long one try to look up a schema may hold up the loop, which must also notice `stop`."""

_HOPELESS = {
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
}

_Identity: TypeAlias = tuple[str, str, Any]
"""What repeats have in common: source and id, which together name an event (CloudEvents 1.0), and revision."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Raw:
    """A record as it lies on its topic; `timestamp_ms` is when it was sent, in milliseconds since the epoch."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]

    @property
    def coordinate(self) -> str:
        """`topic/partition/offset`."""
        return f"{self.topic}/{self.partition}/{self.offset}"

    @property
    def event_id(self) -> str:
        """The header `ce_id`, or the coordinate of a record that has none."""
        value = header_of(self.headers, "ce_id")
        return self.coordinate if value is None else value.decode(errors="replace")

    @property
    def source(self) -> str:
        """The header `ce_source`, who gave it that id; empty of a record that has none."""
        return (header_of(self.headers, "ce_source") or b"").decode(errors="replace")


@dataclass(frozen=True, slots=True)
class Record(_Raw, Generic[E]):
    """A record and its event."""

    event: E


@dataclass(frozen=True, slots=True)
class Undecodable(_Raw):
    """A record that is not an event of its topic, untouched, and why."""

    error: DecodeError


class Subscriber(Generic[E]):
    """Iterates over a topic's records, decoded with the current schema of its contract, whichever version wrote them.

        with Subscriber(topics.FLIGHTS_DEPARTED_ENRICHED, group="my-team", settings=Settings()) as departures:
            for record in departures:
                if isinstance(record, Undecodable):
                    ...
                else:
                    print(record.event)

    At least once: a record counts as handled, and its offset is committed within a second, when the loop asks for the
    next one; the record at hand when the loop is left comes again. Of records with the same `ce_id` and `revision` (a field
    of derived events, which a repair counts up) only the first is given among the last `repeats_window` handled of a partition, as long as this object lives; `repeats` counts the
    others. Aborted and open transactions are not seen. While the registry is away the loop waits.

    `consumer_config` are librdkafka properties besides, such as how long handling one record may take before the group
    gives the partitions to another member (`max.poll.interval.ms`, five minutes by default).

    A new group begins at `start`. With `idle_seconds` the iteration ends when no record has come for so long since the
    partitions were assigned or the last one was handled; otherwise it goes on until `stop`.
    """

    def __init__(
        self,
        topic: Topic[E],
        group: str,
        settings: Settings,
        *,
        registry: Registry | None = None,
        catalog: Catalog | None = None,
        start: Literal["earliest", "latest"] = "earliest",
        idle_seconds: float | None = None,
        repeats_window: int = 100_000,
        consumer_config: Mapping[str, str | int] | None = None,
    ) -> None:
        schema = (catalog or load_catalog()).schema(topic.name)
        self._topic = topic
        self._idle_seconds = idle_seconds
        self._repeats_window = repeats_window
        self._registry = registry or Registry(settings.registry, retry_seconds=_REGISTRY_SECONDS)
        self._owns_registry = registry is None
        self._codec = Codec(self._registry.by_id, reader_schema=schema)
        self._handled: dict[int, dict[_Identity, None]] = {}
        self._stopping = threading.Event()
        self._active_at: float | None = None
        self.repeats = 0
        self._consumer = Consumer(
            {
                **_CONFIG,
                **(consumer_config or {}),
                **settings.kafka.client_config(),
                "group.id": group,
                "auto.offset.reset": start,
            },
            logger=_log,
        )
        self._consumer.subscribe([topic.name], on_assign=self._on_assign)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[Record[E] | Undecodable]:
        """The records, in order within each partition.

        Raises ConsumeError if the topic does not exist or this client may not read it.
        """
        while not self._stopping.is_set() and not self._idle():
            message = self._consumer.poll(_POLL_SECONDS)
            if message is None:
                continue
            self._active_at = time.monotonic()
            if (error := message.error()) is not None:
                self._judge(error)
                continue
            try:
                record = self._decoded(message)
            except RegistryUnavailable as outage:
                _log.warning("waiting for the schema registry: %s", outage)
                self._again(message)
                self._active_at = time.monotonic()  # the wait was the registry's
                continue
            if isinstance(record, Undecodable):
                yield record
            elif self._is_repeat(record):
                self.repeats += 1
            else:
                yield record
                self._remember(record)
            self._store(message)
            self._active_at = time.monotonic()  # handling may have taken any time

    def stop(self) -> None:
        """End the iteration after the record at hand; may be called from a signal handler or another thread."""
        self._stopping.set()

    def close(self) -> None:
        """Commit what was handled and leave the group."""
        self._consumer.close()
        if self._owns_registry:
            self._registry.close()

    def _decoded(self, message: Message) -> Record[E] | Undecodable:
        topic, partition, offset = _place(message)
        headers = tuple((name, _bytes(value)) for name, value in _headers(message))
        raw = (
            topic,
            partition,
            offset,
            message.timestamp()[1],
            _bytes(message.key()),
            _bytes(message.value()),
            headers,
        )
        value = raw[5]
        try:
            if value is None:
                raise Truncated("the record has no value")
            return Record(*raw, event=self._topic.model.model_validate(self._codec.decode(value)))
        except DecodeError as error:
            return Undecodable(*raw, error=error)
        except ValidationError as error:
            return Undecodable(*raw, error=Malformed(f"{self._topic.model.__name__} does not take it: {error}"))

    def _is_repeat(self, record: Record[E]) -> bool:
        return _identity(record) in self._handled.get(record.partition, ())

    def _remember(self, record: Record[E]) -> None:
        handled = self._handled.setdefault(record.partition, {})
        handled[_identity(record)] = None
        if len(handled) > self._repeats_window:
            del handled[next(iter(handled))]

    def _store(self, message: Message) -> None:
        try:
            self._consumer.store_offsets(message)
        except KafkaException as error:
            _forgive_lost_partition(error)

    def _again(self, message: Message) -> None:
        topic, partition, offset = _place(message)
        try:
            self._consumer.seek(TopicPartition(topic, partition, offset))
        except KafkaException as error:
            _forgive_lost_partition(error)

    def _idle(self) -> bool:
        if self._idle_seconds is None or self._active_at is None:
            return False
        return time.monotonic() - self._active_at > self._idle_seconds

    def _on_assign(self, _consumer: Consumer, _partitions: list[TopicPartition]) -> None:
        self._active_at = time.monotonic()

    def _judge(self, error: KafkaError) -> None:
        if error.fatal() or error.code() in _HOPELESS:
            raise ConsumeError(f"{self._topic.name}: {error.name()}: {error.str()}")
        _log.warning("the kafka client goes on after: %s", error.str())


def _identity(record: Record[E]) -> _Identity:
    return record.source, record.event_id, getattr(record.event, "revision", None)


def _place(message: Message) -> tuple[str, int, int]:
    return message.topic() or "", message.partition() or 0, message.offset() or 0


def _headers(message: Message) -> list[tuple[str, str | bytes | None]]:
    headers = message.headers() or []
    return list(headers.items()) if isinstance(headers, dict) else headers


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def _forgive_lost_partition(error: KafkaException) -> None:
    # The partition went to another member of the group meanwhile, which begins at the last committed offset.
    if error.args[0].code() not in (KafkaError._STATE, KafkaError._UNKNOWN_PARTITION):
        raise error

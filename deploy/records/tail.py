"""`headrace tail`: the records of a topic, decoded, as they come."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import typer
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from contracts.definitions.catalog import Catalog
from contracts.errors import ConsumeError, DecodeError, HeadraceError
from contracts.records.codec import Codec
from contracts.records.coordinates import Coordinate
from contracts.records.headers import as_bytes, headers_of
from contracts.servers.brokers import partitions_of, retried, watermarks
from contracts.servers.registry import Registry
from contracts.settings import Settings
from deploy.dead_letter_text import instant, printable, readable
from deploy.moment import moment
from services.alerting.rules.condition import Condition

_BROKER_SECONDS = 30.0
_PATIENCE_SECONDS = 0.1
_AT_ONCE = 1_000


@dataclass(frozen=True, slots=True)
class Start:
    """Where to begin in each partition: so many records `before_end`, or with the first one `since` a moment; or in one partition only,
    `at` an offset.
    """

    before_end: int | None = None
    since: datetime | None = None
    at: tuple[int, int] | None = None

    @classmethod
    def of(cls, text: str) -> Start:
        """`earliest`, `latest`, a number of records before the end, or a time. Raises BadParameter."""
        if text == "earliest":
            return cls()
        if text == "latest":
            return cls(before_end=0)
        if text.isdecimal():
            return cls(before_end=int(text))
        try:
            return cls(since=moment("--from", text))
        except typer.BadParameter as error:
            more = "or earliest, latest, or how many records before the end of each partition"
            raise typer.BadParameter(f"{error.message}, {more}") from None


@dataclass(frozen=True, slots=True)
class Line:
    """A record, decoded with the schema that wrote it; `event` is None where that fails, for the reason `problem`."""

    message: Message
    event: Mapping[str, Any] | None
    problem: str | None

    @property
    def coordinate(self) -> str:
        """`topic/partition/offset`."""
        return str(Coordinate.of(self.message))

    @property
    def at(self) -> datetime | None:
        """When it was sent; None if no calendar has it."""
        return sent_at(self.message)

    @property
    def said(self) -> str:
        """The event as JSON, or the problem."""
        return str(self.problem) if self.event is None else json.dumps(self.event, default=str, ensure_ascii=False)

    def text(self, *, headers: bool) -> str:
        """One line, and one for each header; nothing in it is obeyed by a terminal."""
        said = self.said if self.event is not None else f"({self.said})"
        line = f"{self._when}  {self.coordinate}  {readable(as_bytes(self.message.key()))}  {printable(said)}"
        if not headers:
            return line
        return "\n".join(
            [line, *(f"    {printable(name)} = {readable(value)}" for name, value in headers_of(self.message))]
        )

    def json(self) -> str:
        """One line; bytes that are no text as hexadecimal digits after 0x."""
        key, value = as_bytes(self.message.key()), as_bytes(self.message.value())
        found = {
            "coordinate": self.coordinate,
            "at": self._when,
            "key": None if key is None else readable(key),
            "headers": [[name, None if value is None else readable(value)] for name, value in headers_of(self.message)],
            "event": self.event,
        }
        if self.problem is not None:
            found |= {"problem": self.problem, "value_hex": None if value is None else value.hex()}
        return json.dumps(found, default=str)

    @property
    def _when(self) -> str:
        return f"{self.message.timestamp()[1]} ms" if self.at is None else instant(self.at)


def tail(settings: Settings, topic: str, start: Start, condition: Condition | None, *, follow: bool) -> Iterator[Line]:
    """The records of a topic from `start` on for which the condition holds; raises what `messages` does, and RegistryUnavailable."""
    with Registry(settings.registry) as registry:
        codec = Codec(registry.by_id)
        for message in messages(settings, topic, start, follow=follow):
            line = decoded(codec, message)
            if condition is None or (line.event is not None and condition.holds(line.event)):
                yield line


def messages(settings: Settings, topic: str, start: Start, *, follow: bool = False) -> Iterator[Message]:
    """The committed records of a topic from `start` on; without `follow` up to the end of now.

    Raises ConsumeError if there is no such topic, or the brokers do not answer.
    """
    asked = {
        "group.id": "headrace-tail",
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "earliest",
        "log_level": 0,
    }
    consumer = Consumer({**settings.kafka.client_config(), **asked})
    try:
        places = _places(consumer, topic, start)
        consumer.assign(places)
        left = {place.partition for place in places}
        while follow or left:
            for message in consumer.consume(_AT_ONCE, _PATIENCE_SECONDS):
                error = message.error()
                if error is None:
                    yield message
                elif error.code() == KafkaError._PARTITION_EOF:
                    left.discard(message.partition() or 0)
                elif not error.retriable():
                    raise KafkaException(error)
    except KafkaException as error:
        raise ConsumeError(f"{topic}: the brokers say: {error.args[0].str()}") from error
    finally:
        consumer.close()


def _places(consumer: Consumer, topic: str, start: Start) -> list[TopicPartition]:
    partitions = partitions_of(consumer, topic, _BROKER_SECONDS)
    if not partitions:
        raise ConsumeError(f"there is no topic {topic}")
    if start.at is not None:
        return [TopicPartition(topic, *start.at)]
    if start.since is not None:
        at_ms = round(start.since.timestamp() * 1000)
        asked = [TopicPartition(topic, partition, at_ms) for partition in partitions]
        return retried(lambda: consumer.offsets_for_times(asked, timeout=_BROKER_SECONDS), _BROKER_SECONDS)
    places = []
    for partition in partitions:
        low, high = watermarks(consumer, topic, partition, _BROKER_SECONDS)
        places.append(
            TopicPartition(topic, partition, low if start.before_end is None else max(low, high - start.before_end))
        )
    return places


def decoded(codec: Codec, message: Message) -> Line:
    """The record, decoded if it can be."""
    value = as_bytes(message.value())
    if value is None:
        return Line(message, None, "no value")
    try:
        return Line(message, codec.decode(value), None)
    except DecodeError as error:
        return Line(message, None, f"{type(error).__name__}: {error}")


def unknown_fields(catalog: Catalog, topic: str, condition: Condition) -> list[str]:
    """Names in a condition that no field of the topic's schema has; none of a topic without a contract."""
    try:
        schema = catalog.schema(topic)
    except HeadraceError:
        return []
    fields = {field["name"] for field in json.loads(schema)["fields"]}
    return sorted(set(condition.fields) - fields)


def sent_at(message: Message) -> datetime | None:
    """A record's timestamp as an instant; None if no calendar has it."""
    try:
        return datetime.fromtimestamp(message.timestamp()[1] / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return None

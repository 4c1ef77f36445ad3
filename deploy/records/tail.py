"""`headrace tail`: the records of a topic, decoded, as they come."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import typer
from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from contracts.definitions.catalog import Catalog
from contracts.errors import ConsumeError, DecodeError, HeadraceError
from contracts.records.codec import Codec
from contracts.records.coordinates import Coordinate
from contracts.records.headers import as_bytes, headers_of
from contracts.servers.brokers import partitions_of, retried, watermarks
from contracts.servers.ranges import OffsetRange, records_in
from contracts.servers.registry import Registry
from contracts.settings import Settings
from deploy.dead_letter_text import instant, printable, readable
from deploy.moment import moment
from services.alerting.rules.condition import Condition

_BROKER_SECONDS = 30.0


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

    Raises ConsumeError if there is no such topic, or the brokers do not answer; with `follow` it waits for them.
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
        ranges = _ranges(consumer, topic, start)
        if follow:
            ranges = [replace(each, end=sys.maxsize) for each in ranges]
        for batch in records_in(consumer, ranges, silent_seconds=math.inf if follow else _BROKER_SECONDS):
            yield from batch
    except KafkaException as error:
        raise ConsumeError(f"{topic}: the brokers say: {error.args[0].str()}") from error
    finally:
        consumer.close()


def _ranges(consumer: Consumer, topic: str, start: Start) -> list[OffsetRange]:
    partitions = partitions_of(consumer, topic, _BROKER_SECONDS)
    if not partitions:
        raise ConsumeError(f"there is no topic {topic}")
    held = [OffsetRange(topic, each, *watermarks(consumer, topic, each, _BROKER_SECONDS)) for each in partitions]
    if start.at is not None:
        return [replace(each, start=start.at[1]) for each in held if each.partition == start.at[0]]
    if start.since is not None:
        at_ms = round(start.since.timestamp() * 1000)
        asked = [TopicPartition(topic, partition, at_ms) for partition in partitions]
        found = retried(lambda: consumer.offsets_for_times(asked, timeout=_BROKER_SECONDS), _BROKER_SECONDS)
        first = {each.partition: each.offset for each in found}
        # Where none is so new, what comes next.
        return [replace(each, start=each.end if (at := first[each.partition]) < 0 else at) for each in held]
    if start.before_end is not None:
        return [replace(each, start=max(each.start, each.end - start.before_end)) for each in held]
    return held


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

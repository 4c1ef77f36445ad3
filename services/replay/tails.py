"""`Tails`: the newest records that a service has in a topic, read from the end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Self

from confluent_kafka import Consumer, KafkaException, Message

from contracts.errors import ConsumeError
from contracts.records.dead_letter_headers import REDRIVEN_FROM
from contracts.records.headers import headers_of
from contracts.servers.brokers import watermarks
from contracts.servers.ranges import OffsetRange, records_in
from contracts.servers.replication import wait_for_replication
from contracts.settings import KafkaSettings
from services.replay.position import HEADER, START, Position

FIRST_REACH = 256
"""Offsets that the first look back takes in; each next one takes four times as many, up to `_MOST_REACH`."""

_MOST_REACH = 16_384
"""They are held at once."""

_PATIENCE_SECONDS = 60


class Forgotten(ConsumeError):
    """What would tell how far a service came is deleted."""


class Tails:
    """Looks back into topics. It belongs to no consumer group and commits nothing; use it in a `with`."""

    def __init__(self, kafka: KafkaSettings) -> None:
        self._kafka = kafka
        self._consumer = Consumer(
            kafka.client_config()
            | {
                "group.id": "headrace-tails",  # the client wants one; no group is joined
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_uncommitted",
                "auto.offset.reset": "error",
            }
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._consumer.close()

    def wait_for_replication(self, topics: Sequence[str]) -> None:
        """Return when all that a producer, now dead, had sent to these topics can be read. Raises ConsumeError."""
        try:
            wait_for_replication(self._kafka, self._consumer, topics)
        except KafkaException as error:
            raise ConsumeError(f"{', '.join(topics)}: {error.args[0].str()}") from error

    def partitions(self, topic: str) -> list[int]:
        """The topic's partitions. Raises ConsumeError if there is no such topic or the broker does not answer."""
        try:
            found = self._consumer.list_topics(topic, timeout=_PATIENCE_SECONDS).topics[topic]
        except KafkaException as error:
            raise ConsumeError(f"{topic}: {error.args[0].str()}") from error
        if found.error is not None:
            raise ConsumeError(f"{topic}: {found.error.str()}")
        return sorted(found.partitions)

    def positions(self, topic: str, partition: int, service: str) -> Iterator[Position]:
        """The positions of the records that `service` replayed, newest first, then START; read as far as they are asked for.

        Raises Forgotten in place of START if the partition's first records are deleted.
        """
        try:
            low, end = watermarks(self._consumer, topic, partition, _PATIENCE_SECONDS)
        except KafkaException as error:
            raise ConsumeError(f"{topic}/{partition}: {error.args[0].str()}") from error
        for message in self._backwards(topic, partition, low, end):
            position = _position(message, service)
            if position is not None:
                yield position
        if low > 0:
            raise Forgotten(
                f"{topic}/{partition}: how far {service} came can't be told, because records before offset {low} are deleted, "
                "by retention or by hand: `headrace up --fresh` replays into topics and a lake made anew, "
                "`headrace up --no-producers` keeps what is there and replays nothing"
            )
        yield START

    def _backwards(self, topic: str, partition: int, low: int, end: int) -> Iterator[Message]:
        reach = FIRST_REACH
        while end > low:
            start = max(low, end - reach)
            yield from reversed(self._range(topic, partition, start, end))
            end, reach = start, min(reach * 4, _MOST_REACH)

    def _range(self, topic: str, partition: int, start: int, end: int) -> list[Message]:
        """The records at offsets from `start` up to, not including, `end`."""
        try:
            found = records_in(
                self._consumer, [OffsetRange(topic, partition, start, end)], silent_seconds=_PATIENCE_SECONDS
            )
            return [message for batch in found for message in batch]
        except KafkaException as error:
            raise ConsumeError(f"{topic}/{partition}: {error.args[0].str()}") from error


def _position(message: Message, service: str) -> Position | None:
    headers = {name: value.decode(errors="replace") for name, value in headers_of(message) if value is not None}
    if REDRIVEN_FROM in headers:
        return None  # its position is that of long ago, and what follows that is there already
    # Who wrote a dead letter is not who wrote the record that it holds.
    author = headers.get("__connect.errors.connector.name", headers.get("ce_source", "").removeprefix("/services/"))
    try:
        return Position.parse(headers[HEADER]) if author == service else None
    except (KeyError, ValueError):
        return None  # sent under our name, but not by a replay

"""`DeadLetter`: a record that could not be handled, as it lies on its dead-letter topic."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Self

from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_NOT_AVAILABLE, Message

from contracts.records.coordinates import Coordinate
from contracts.records.dead_letter_headers import (
    ERRORS,
    REDRIVEN_FROM,
    STUMP_BYTES,
    STUMP_SHA256,
    TIMESTAMP,
    original_headers,
)
from contracts.records.headers import header_of, headers_of
from contracts.records.limits import record_size
from contracts.records.missed_windows import MissedWindows

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_NUMBER = re.compile("[0-9]{1,15}")
"""Milliseconds until the year 33658, and any size."""

_LONGEST_TOPIC = 249
"""Characters of a topic's name, at any broker."""

NO_REASON = "(none given)"
"""Stands where a dead letter of a stranger does not say why it is one."""


@dataclass(frozen=True)
class DeadLetter:
    """Key, value and headers are bytes that nobody vouches for; `timestamp_ms` is the record's own, None if it had none.

    A stump has none of them: its record was larger than a dead letter may be.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]

    @classmethod
    def of(cls, message: Message) -> Self:
        """The dead letter in a consumed message."""
        headers = tuple(headers_of(message))
        kind, timestamp_ms = message.timestamp()
        # Behind the coordinate only: what stands before it is the record's own claim.
        kept = _last(_added(headers), TIMESTAMP)
        if kept is not None and _NUMBER.fullmatch(kept):
            kind, timestamp_ms = TIMESTAMP_CREATE_TIME, int(kept)
        return cls(
            message.topic() or "",
            message.partition() or 0,
            message.offset() or 0,
            None if kind == TIMESTAMP_NOT_AVAILABLE else timestamp_ms,
            message.key(),
            message.value(),
            headers,
        )

    @property
    def coordinate(self) -> str:
        """Its own place: topic/partition/offset."""
        return str(Coordinate(self.topic, self.partition, self.offset))

    @cached_property
    def origin(self) -> Coordinate | None:
        """Where its record lies; None if it never was one, or does not say."""
        topic, partition, offset = (self._said(name) for name in ("topic", "partition", "offset"))
        if topic is None or len(topic) > _LONGEST_TOPIC or partition is None or offset is None:
            return None
        return Coordinate.said(topic, partition, offset)

    @property
    def reason(self) -> str:
        """The name of what went wrong."""
        return self._said("exception.class.name") or NO_REASON

    @property
    def error(self) -> str | None:
        """What went wrong, in a sentence."""
        return self._said("exception.message")

    @property
    def by(self) -> str | None:
        """Who could not handle it."""
        return self._said("connector.name")

    @property
    def redriven_from(self) -> str | None:
        """The earlier dead letter, if this is the record of one that was sent back and failed again."""
        return _last(self.headers, REDRIVEN_FROM)

    @property
    def timestamp(self) -> datetime | None:
        """`timestamp_ms` as an instant; None too if no calendar has it."""
        try:
            return None if self.timestamp_ms is None else _EPOCH + timedelta(milliseconds=self.timestamp_ms)
        except OverflowError:
            return None

    @property
    def stump_bytes(self) -> int | None:
        """The size of the record of which this is a stump; None if this is none."""
        size = _last(_added(self.headers), STUMP_BYTES)
        return int(size) if size is not None and _NUMBER.fullmatch(size) else None

    @property
    def record_bytes(self) -> int:
        """The size of its record."""
        size = self.stump_bytes
        return record_size(self.key, self.value, self.original_headers()) if size is None else size

    @cached_property
    def value_sha256(self) -> str | None:
        """Of the record's value, hexadecimal; None if it had none."""
        if self.stump_bytes is not None:
            return _last(_added(self.headers), STUMP_SHA256)
        return None if self.value is None else hashlib.sha256(self.value).hexdigest()

    @property
    def missed(self) -> MissedWindows | None:
        """The windows of an aggregate that the record came too late for; None if this is no late record."""
        return MissedWindows.of(_added(self.headers))

    def original_headers(self) -> list[tuple[str, bytes | None]]:
        """The headers that its record had."""
        return original_headers(self.headers, str(self.origin))

    def _said(self, name: str) -> str | None:
        return _last(self.headers, ERRORS + name)


def _added(headers: Sequence[tuple[str, bytes | None]]) -> Sequence[tuple[str, bytes | None]]:
    """From the coordinate on: what stands before it is the record's own claim."""
    return headers[max((at for at, (name, _) in enumerate(headers) if name == "ce_id"), default=0) :]


def _last(headers: Sequence[tuple[str, bytes | None]], name: str) -> str | None:
    value = header_of(headers, name)
    return None if value is None else value.decode(errors="replace")

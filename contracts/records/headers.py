"""What a record's headers say: `headers_of`, and `header_of` where a name may stand more than once; `instant_of`, `as_bytes`."""

from __future__ import annotations

import logging
import operator
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, cast

from contracts.records.coordinates import Coordinate

if TYPE_CHECKING:
    from confluent_kafka import Message

_Value = str | bytes | None

_HEADERS = operator.methodcaller("headers")
"""Which looks whether an exception is set. Python itself (3.11) looks no more at a call that it has met some times."""

_told: set[str] = set()
"""Partitions of which one such record was told: of the others nobody learns more."""

_log = logging.getLogger(__name__)


def headers_of(message: Message) -> list[tuple[str, bytes | None]]:
    """A consumed record's headers. None, and a warning for the first of a partition, if the name of one is not UTF-8.

    A name is bytes on a topic, whatever its sender took for text. confluent-kafka (2.16.1) has no other way to the headers, and
    makes a broken list of them then, with an exception set.
    """
    try:
        return cast("list[tuple[str, bytes | None]]", _HEADERS(message) or [])
    except SystemError as error:
        cause: BaseException | None = error
        while isinstance(cause, SystemError):  # one for each further name
            cause = cause.__cause__
        if not isinstance(cause, UnicodeDecodeError):
            raise
        # It would give that list without an exception the next time.
        message.set_headers([])
        partition = f"{message.topic()}/{message.partition()}"
        level = logging.DEBUG if partition in _told else logging.WARNING
        _told.add(partition)
        _log.log(level, "%s: taken as without headers: the name of one is not UTF-8", Coordinate.of(message))
        return []


def as_bytes(value: _Value) -> bytes | None:
    """A consumed record's key, value or header, which confluent-kafka's types take for a text too."""
    return value.encode() if isinstance(value, str) else value


def header_of(headers: Sequence[tuple[str, _Value]], name: str) -> bytes | None:
    """The value of the last header with this name; None if there is none, or it has no value.

    The last, as Kafka's own `Headers.lastHeader`: whoever passes a record on adds at the end.
    """
    for found, value in reversed(headers):
        if found == name:
            return value.encode() if isinstance(value, str) else value
    return None


def instant_of(headers: Sequence[tuple[str, _Value]], name: str) -> datetime | None:
    """The instant that a header tells by ISO 8601 with a zone, in UTC; None if it tells none, or one that no calendar has."""
    try:
        found = datetime.fromisoformat((header_of(headers, name) or b"").decode())
        return None if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError):
        return None

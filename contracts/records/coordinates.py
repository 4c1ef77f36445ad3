"""Coordinates: `topic/partition/offset` of a raw record, which is the id (`ce_id`) of the events that are derived from it."""

from __future__ import annotations

import functools
import re

_PLACE = "(?P<partition>0|[1-9][0-9]{0,4})/(?P<offset>0|[1-9][0-9]{0,12})"
"""Partition and offset without leading zeros, so that a record has one coordinate; more digits than any broker reaches."""
_COORDINATE = re.compile(f"[A-Za-z0-9._-]+/{_PLACE}")
_IN_TOPIC = re.compile(_PLACE)


def pattern(topic: str) -> str:
    """A regular expression for the coordinates of this topic's records, whole; re and RE2 read it alike."""
    return f"^{re.escape(topic)}/{_PLACE}$"


def coordinate_of(derived_from: str | None, topic: str, partition: int, offset: int, event_id: bytes | None) -> str:
    """The coordinate of the raw record that a record goes back to: its event id, if its topic is `derived_from` another and
    the id is a coordinate there; else the record's own.
    """
    if derived_from is not None and event_id is not None and _compiled(derived_from).fullmatch(event_id):
        return event_id.decode()
    return f"{topic}/{partition}/{offset}"


def is_coordinate(text: str) -> bool:
    """Whether the text is a coordinate of any topic's."""
    return _COORDINATE.fullmatch(text) is not None


def place_of(partition: str, offset: str) -> tuple[int, int] | None:
    """Partition and offset; None unless both are written as in a coordinate."""
    found = _IN_TOPIC.fullmatch(f"{partition}/{offset}")
    return None if found is None else (int(found["partition"]), int(found["offset"]))


def place_in(topic: str, event_id: bytes | None) -> tuple[int, int] | None:
    """Partition and offset, if an event's id is the coordinate of a record of this topic."""
    if event_id is None or not _compiled(topic).fullmatch(event_id):
        return None
    _, partition, offset = event_id.rsplit(b"/", 2)
    return int(partition), int(offset)


@functools.cache
def _compiled(topic: str) -> re.Pattern[bytes]:
    return re.compile(pattern(topic).encode())

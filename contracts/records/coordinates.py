"""Coordinates: `topic/partition/offset` of a raw record, which is the id (`ce_id`) of the event that is derived from it.

Where one record becomes many, each event's id has the number of its part, from 0 on, as well: `topic/partition/offset/part`.
"""

from __future__ import annotations

import functools
import re

_PLACE = "(?P<partition>0|[1-9][0-9]{0,4})/(?P<offset>0|[1-9][0-9]{0,12})"
"""Partition and offset without leading zeros, so that a record has one coordinate; more digits than any broker reaches."""
_PART = "/(?P<part>0|[1-9][0-9]{0,8})"
PARTS = "ce_parts"
"""Header of an event with the number of a part in its id: how many parts the raw record has, in decimal digits."""
_COORDINATE = re.compile(f"[A-Za-z0-9._-]+/{_PLACE}({_PART})?")
_IN_TOPIC = re.compile(_PLACE)


def pattern(topic: str, *, parts: bool = False) -> str:
    """A regular expression for the coordinates of this topic's records, whole, all with `parts` or none; re and RE2 read it alike."""
    return f"^{re.escape(topic)}/{_PLACE}{_PART if parts else ''}$"


def coordinate_of(
    derived_from: str | None, topic: str, partition: int, offset: int, event_id: bytes | None, *, parts: bool = False
) -> str:
    """The coordinate that a record goes by: its event id, if its topic is `derived_from` another and the id is a coordinate there,
    with the number of a part where the topic has `parts`; else the record's own.
    """
    if derived_from is not None and event_id is not None and _compiled(derived_from, parts).fullmatch(event_id):
        return event_id.decode()
    return f"{topic}/{partition}/{offset}"


def is_coordinate(text: str) -> bool:
    """Whether the text is a coordinate of any topic's."""
    return _COORDINATE.fullmatch(text) is not None


def record_of(coordinate: str) -> str:
    """The coordinate of the raw record: `coordinate` without the number of a part."""
    return "/".join(coordinate.split("/")[:3])


def place_of(partition: str, offset: str) -> tuple[int, int] | None:
    """Partition and offset; None unless both are written as in a coordinate."""
    found = _IN_TOPIC.fullmatch(f"{partition}/{offset}")
    return None if found is None else (int(found["partition"]), int(found["offset"]))


def place_in(topic: str, event_id: bytes | None) -> tuple[int, int] | None:
    """Partition and offset, if an event's id is the coordinate of a record of this topic."""
    if event_id is None or not _compiled(topic, False).fullmatch(event_id):
        return None
    _, partition, offset = event_id.rsplit(b"/", 2)
    return int(partition), int(offset)


def part_in(topic: str, event_id: bytes | None) -> tuple[int, int, int] | None:
    """Partition, offset and part, if an event's id is the coordinate of a part of a record of this topic."""
    if event_id is None or not _compiled(topic, True).fullmatch(event_id):
        return None
    _, partition, offset, part = event_id.rsplit(b"/", 3)
    return int(partition), int(offset), int(part)


@functools.cache
def _compiled(topic: str, parts: bool) -> re.Pattern[bytes]:
    return re.compile(pattern(topic, parts=parts).encode())

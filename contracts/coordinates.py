"""Coordinates: `topic/partition/offset` of a raw record, which is the id (`ce_id`) of the events that are derived from it."""

from __future__ import annotations

import functools
import re

_PLACE = "(?:0|[1-9][0-9]{0,4})/(?:0|[1-9][0-9]{0,12})"
"""Partition and offset without leading zeros, so that a record has one coordinate; more digits than any broker reaches."""


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


@functools.cache
def _compiled(topic: str) -> re.Pattern[bytes]:
    return re.compile(pattern(topic).encode())

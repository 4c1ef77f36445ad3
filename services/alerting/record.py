"""`Record`: what the rules look at."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

# <domain>.<event>[.<stage>].v<major>/partition/offset: how a derived record names the raw one that it comes from.
_COORDINATE = re.compile(rb"[a-z][a-z0-9]*(?:\.[a-z0-9]+){1,2}\.v[1-9][0-9]*/[0-9]+/[0-9]+")


@dataclass(frozen=True, slots=True)
class Record:
    """A decoded record: its topic, the raw record's coordinate, the event time in UTC, and its fields by name."""

    topic: str
    coordinate: str
    occurred_at: datetime
    values: Mapping[str, Any]


def coordinate_of(topic: str, partition: int, offset: int, event_id: bytes | None) -> str:
    """topic/partition/offset of the raw record: the event id of a derived record, else the record's own place."""
    if event_id is not None and _COORDINATE.fullmatch(event_id):
        return event_id.decode()
    return f"{topic}/{partition}/{offset}"

"""`Record`: what the rules look at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class Record:
    """A decoded record: its topic, the raw record's coordinate, the event time in UTC, and its fields by name."""

    topic: str
    coordinate: str
    occurred_at: datetime
    values: Mapping[str, Any]

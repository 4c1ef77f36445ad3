"""`records_at`: records of a story, of which only a few things matter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from services.audit.records.recompute import RIGHT
from services.audit.records.records import Records
from services.audit.values.place import WHOLE


def records_at(at: Sequence[int], sent_ms: Sequence[int], readable: Sequence[bool], key: Any, **more: Any) -> Records:
    """At these places. `payload` is the place, as in the letters of the stories."""
    count = len(at)
    fields: dict[str, Any] = {name: np.zeros(count, np.uint64) for name in ("event", "row")}
    fields |= {
        "at": np.array(at, np.int64),
        "source": np.array(at, np.int64),
        "part": np.full(count, WHOLE),
        "parts": np.zeros(count, np.int64),
        "sent_ms": np.array(sent_ms, np.int64),
        "revision": np.zeros(count, np.int64),
        "key": key,
        "payload": np.array(at, np.uint64),
        "shared": {},
        "wanted": {},
        "compared": np.zeros(count, np.int8),
        "readable": np.array(readable, np.bool_),
        "redriven": np.zeros(count, np.bool_),
        "verdict": np.full(count, RIGHT, np.int16),
    }
    return Records("topic", 0, **fields | more)

"""The modes of `live`, and what each of them guarantees."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class Mode(StrEnum):
    """How `live` runs."""

    EXACTLY_ONCE = "exactly-once"
    REAL_TIME = "real-time"
    AT_LEAST_ONCE = "at-least-once"


GUARANTEES: Mapping[Mode, str] = {
    Mode.EXACTLY_ONCE: "each record comes out once, also after a failure, some tenths of a second after it went in",
    Mode.REAL_TIME: (
        "each record comes out a few milliseconds after it went in, and after a failure the records of the last moments may come "
        "out again, with the same coordinates"
    ),
    Mode.AT_LEAST_ONCE: (
        "each record comes out some tenths of a second after it went in, and after a failure the records of the batch under way come "
        "out again, with the same coordinates"
    ),
}
"""One sentence each, for `--help`."""

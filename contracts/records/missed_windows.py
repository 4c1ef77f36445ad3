"""`MissedWindows`: what the headers of a late record say of the windows that it missed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple, Self

from contracts.records.dead_letter_headers import ERRORS, Header
from contracts.records.headers import instant_of

FIRST_WINDOW_END = f"{ERRORS}first.window.end"
LAST_WINDOW_END = f"{ERRORS}last.window.end"
WATERMARK = f"{ERRORS}watermark"

_NAMES = (FIRST_WINDOW_END, LAST_WINDOW_END, WATERMARK)


class MissedWindows(NamedTuple):
    """When the `first` and the `last` of them end, and the `watermark` by which both are over."""

    first: datetime
    last: datetime
    watermark: datetime

    @classmethod
    def of(cls, headers: Sequence[tuple[str, str | bytes | None]]) -> Self | None:
        """None if the headers of a record don't say it, or not as they should."""
        found = [instant_of(headers, name) for name in _NAMES]
        first, last, watermark = found
        return None if first is None or last is None or watermark is None else cls(first, last, watermark)


def missed_windows_headers(first: str, last: str, watermark: str) -> list[Header]:
    """What a late record has behind the headers of a dead letter. Instants are texts like 2026-01-01T10:15:00.000000Z: ISO 8601, UTC, with
    microseconds.
    """
    return list(zip(_NAMES, (first, last, watermark), strict=True))

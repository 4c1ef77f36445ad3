"""`Position`: the place of an entry in its table's timeline."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from typing import NamedTuple, Self

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_FIRST, _LAST = ((at.replace(tzinfo=UTC) - _EPOCH) // _MILLISECOND for at in (datetime.min, datetime.max))

HEADER = "ce_sequence"
"""Each record carries its position: CloudEvents' extension `sequence`, whose values sort as text."""


class Position(NamedTuple):
    """Ordered by event time, in milliseconds since the epoch, and then by row number."""

    time: int
    row: int

    @classmethod
    def at(cls, occurred_at: datetime, row: int = 0) -> Self:
        """The position of a row that happened at this instant; of the first one by default."""
        return cls((occurred_at - _EPOCH) // _MILLISECOND, row)

    @classmethod
    def parse(cls, text: str) -> Self:
        """What `str` made. Raises ValueError if it did not make this, or no calendar has the time."""
        time, _, row = text.rpartition("-")
        position = cls(int(time), int(row))
        if str(position) != text or not _FIRST <= position.time <= _LAST:
            raise ValueError(f"{text!r} is no position")
        return position

    def __str__(self) -> str:
        return f"{self.time:015d}-{self.row:09d}"

    @property
    def occurred_at(self) -> datetime:
        """The event time."""
        return _EPOCH + self.time * _MILLISECOND


START = Position(-sys.maxsize, -1)
"""Before every entry."""

"""`Unfit`: a source row that the contract cannot express."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Unfit:
    """Why a row is no event; it becomes a dead letter.

    `reason` is the class of the trouble in one word, `explanation` a sentence about this row. `occurred_at` says when
    the row takes its turn; None is right after the row before it.
    """

    reason: str
    explanation: str
    occurred_at: datetime | None = None

"""`Finding`: one thing that is wrong, and `Tally`: how much was looked at."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

Kind = Literal["lost", "doubled", "out of order", "changed", "phantom", "set aside"]
KINDS: tuple[Kind, ...] = ("lost", "doubled", "out of order", "changed", "phantom", "set aside")


class Finding(NamedTuple):
    """`hop` and `partition` (topic/partition) say where, `coordinate` which record, `detail` what is wrong with it."""

    kind: Kind
    hop: str
    partition: str
    coordinate: str
    detail: str


@dataclass(slots=True)
class Tally:
    """One partition at one hop: `records` that were audited, and what is worth knowing but nothing wrong, by name."""

    hop: str
    partition: str
    records: int = 0
    notes: Counter[str] = field(default_factory=Counter)

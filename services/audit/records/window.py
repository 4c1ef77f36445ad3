"""`Window`: which records of a topic an audit looks at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from services.audit.values.place import Codes, code


class Where(IntEnum):
    """Where a place lies, seen from a window."""

    NOWHERE = 0
    """The topic has no such place, or not yet."""
    BEFORE = 1
    """An earlier audit has looked at it and found nothing wrong."""
    GONE = 2
    """Deleted before it was audited."""
    INSIDE = 3
    AHEAD = 4
    """It came after the cut."""


@dataclass(frozen=True, slots=True)
class Span:
    """Offsets of one partition. `low`: the first that is still there. `audited`: up to this one an earlier audit was clean.
    `end`: the cut. `reread`: where reading begins, for what came ahead of an earlier audit's cut.
    """

    low: int
    audited: int
    end: int
    reread: int

    @property
    def start(self) -> int:
        """The first offset to look at."""
        return max(self.low, self.audited)

    @property
    def read_from(self) -> int:
        """The first offset to read."""
        return max(self.low, min(self.audited, self.reread))


@dataclass(frozen=True, slots=True)
class Window:
    """The spans of a topic's partitions."""

    topic: str
    spans: Mapping[int, Span]

    def where(self, places: Codes, latest: Mapping[int, int] | None = None) -> npt.NDArray[np.int8]:
        """A `Where` for each place; `latest` are the topic's ends by now (default: the cut), for what is still to come: also those of
        partitions that were added since the cut.
        """
        found = np.full(len(places), Where.NOWHERE, np.int8)
        ends = {} if latest is None else latest
        for partition in ends.keys() - self.spans.keys():
            found[(places >= code(partition, 0)) & (places < code(partition, ends[partition]))] = Where.AHEAD
        for partition, span in self.spans.items():
            end = max(span.end, ends.get(partition, 0))
            # In this order: each one overwrites those after it that lie lower.
            for upto, where in (
                (end, Where.AHEAD),
                (span.end, Where.INSIDE),
                (span.low, Where.GONE),
                (span.audited, Where.BEFORE),
            ):
                found[(places >= code(partition, 0)) & (places < code(partition, upto))] = where
        return found

    def notes(self, partition: int) -> dict[str, int]:
        """Offsets that are deleted and were never audited."""
        span = self.spans[partition]
        gone = span.low - span.audited
        return {"offsets deleted by retention before this audit": gone} if gone > 0 else {}

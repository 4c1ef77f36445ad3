"""`Expected`: which raw records are to be in groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from services.audit.aggregates.letters import Letters
from services.audit.aggregates.raw import RawRecords
from services.audit.aggregates.sheet import Sheet
from services.audit.aggregates.windows import Mask
from services.audit.values.place import partition_of


@dataclass(frozen=True, slots=True)
class Expected:
    """Of the raw records those that `must` be in their groups, those that `may` be, and those that must be in some: the late ones."""

    must: Mask
    may: Mask
    partly: Mask

    @classmethod
    def of(
        cls, sheet: Sheet, raw: RawRecords, dead_letters: Letters, late_letters: Letters, *, is_rebuilt: bool
    ) -> Self:
        """Notes in the tallies why records are in no group. A rebuild may have counted what was late before."""
        is_member = raw.members.belong & raw.good
        dead, late = raw.named(dead_letters), raw.named(late_letters)
        purged = np.isin(raw.at, raw.known.purged) & ~dead
        # Of a letter that expired nothing is left, but that letters did.
        expired = raw.expired(late_letters) & ~late
        may = purged | expired
        if is_rebuilt:
            # A run that computed everything again had batches of its own: what came late to the one before may be in time.
            may |= late & ~dead
        notes = {
            "dead letters": dead,
            "purged dead letters": purged,
            "late": late,
            "that may have been late, for late records are deleted by now": expired & is_member & ~dead & ~purged,
            "that were late before a rebuild, which may have counted them": may & is_member & late,
            "in no group, by the condition": raw.good & ~is_member & ~dead & ~late,
        }
        for partition in raw.window.spans:
            here = partition_of(raw.at) == partition
            for text, mask in notes.items():
                sheet.tally(raw.window, partition).notes[text] += int(np.sum(mask & here))
        return cls(is_member & ~dead & ~late & ~may, is_member & may, is_member & late & ~dead & ~may)

"""`RawRecords`: the raw records of an aggregate."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from services.audit.aggregates.letters import FOREVER, Known, Letters
from services.audit.aggregates.windows import Mask
from services.audit.hops.derived import CLOCKS_DIFFER_MS
from services.audit.records.groups import MINUTE, NEVER, Instants, Members
from services.audit.records.records import Records
from services.audit.records.window import Where, Window
from services.audit.values.place import concatenated, partition_of

_MOST_AHEAD_MINUTES = 60
"""An event further ahead of its record is a dead letter: by its time all others would be late. Or half of the lateness, if that is less."""


def most_ahead(late_after_minutes: int) -> int:
    """By how many microseconds an event may be ahead of its record."""
    return max(1, min(_MOST_AHEAD_MINUTES, late_after_minutes // 2)) * MINUTE


class RawRecords:
    """Those up to the cut, one entry of each array for each, in the order of their places; `later` are those that came after it, as far as
    groups may have them. `good` are those that can be read and are not from the future.
    """

    def __init__(
        self, topic: str, window: Window, records: Sequence[Records], later: Sequence[Records], known: Known
    ) -> None:
        """`topic`: the aggregate's, whose members they are; `window`: of the raw topic."""
        self.window, self.known = window, known
        self.at = concatenated([part.at for part in records], np.int64)
        self.payload = concatenated([part.payload for part in records], np.uint64)
        self.sent_ms = concatenated([part.sent_ms for part in records], np.int64)
        self._was_redriven = concatenated([part.redriven for part in records], np.bool_)
        self.members = Members.joined([part.members[topic] for part in records])
        self.later = Members.joined([part.members[topic] for part in later])
        self._ahead = most_ahead(known.late_after_minutes)
        self.good = self._of_good(self.members, records)
        self.later_good = self._of_good(self.later, later)
        self.unread_before = self._unread()
        self._united: RawRecords | None = None

    def unite(self, other: RawRecords) -> None:
        """The groups count the records of the other topic, too: the watermark is of both."""
        self._united, other._united = other, self

    @property
    def newest(self) -> int | None:
        """No raw record up to this cut has a later event time; None: nobody knows."""
        found = max(self.unread_before, int(self.members.of[self.good].max(initial=NEVER)))
        return None if found == FOREVER else found

    @property
    def newest_of_all(self) -> int:
        """The watermark was never later than this less the lateness: as `newest`, those that came after the cut included, and of two topics that of the one
        that is behind, or ahead, as the contract says; FOREVER: nobody knows.
        """
        if self._united is None:
            return self._newest_of_all
        chosen = min if self.known.watermark_of == "slower" else max
        return chosen(self._newest_of_all, self._united._newest_of_all)

    @property
    def _newest_of_all(self) -> int:
        return max(
            self.unread_before,
            int(self.members.of[self.good].max(initial=NEVER)),
            int(self.later.of[self.later_good].max(initial=NEVER)),
        )

    def named(self, letters: Letters) -> Mask:
        """Which ones have a letter."""
        return np.isin(self.at, letters.source)

    def expired(self, letters: Letters) -> Mask:
        """Those whose letters, which have their time, may be deleted by now."""
        if not letters.has_deleted:
            return np.zeros(len(self.at), np.bool_)
        old: Mask = self.sent_ms <= letters.kept_since_ms + CLOCKS_DIFFER_MS
        return old

    def where(self, letters: Letters) -> npt.NDArray[np.int8]:
        """Of each letter a `Where` of the record that it is of."""
        where = self.window.where(letters.source, self.known.latest)
        where[(where == Where.INSIDE) & ~np.isin(letters.source, self.at)] = Where.NOWHERE
        return where

    def over_for(self, late: Letters) -> Instants:
        """For each one when the last of its windows ends that a late letter says is over."""
        over = np.full(len(self.at), NEVER)
        known = np.flatnonzero(np.isin(late.source, self.at))
        np.maximum.at(over, np.searchsorted(self.at, late.source[known]), late.over[known])
        return over

    def fault(self, source: int) -> str:
        """What is wrong with the one at a place, which is not good, behind "it"."""
        can_be_read = self.members.of[np.searchsorted(self.at, source)] != NEVER
        return "is from the future, more than an aggregate takes" if can_be_read else "can't be read"

    def _unread(self) -> int:
        """No raw record that this audit has not read, and whose group it has, is of a later time: a group whose window begins after that is
        wholly of records that were read. In microseconds; NEVER if all were read.
        """
        bound = NEVER
        for partition, span in self.window.spans.items():
            if span.audited > 0:
                bound = max(bound, FOREVER if self.known.newest_before is None else self.known.newest_before)
            if span.low > span.audited:
                bound = max(bound, self._deleted_before(partition))
        return bound

    def _deleted_before(self, partition: int) -> int:
        """The event time that no deleted record of this raw partition goes beyond, if it was counted. What retention deletes was sent before
        what it leaves, or before all that the contract promises to keep; where it leaves nothing, that alone is known.
        """
        # What was redriven is old, and lies among the new.
        left = self.sent_ms[(partition_of(self.at) == partition) & ~self._was_redriven]
        until_ms: int = max([self.known.raw_kept_since_ms, *left[:1].tolist()])
        return (until_ms + CLOCKS_DIFFER_MS) * 1000 + self._ahead

    def _of_good(self, members: Members, records: Sequence[Records]) -> Mask:
        sent = concatenated([part.sent_ms for part in records], np.int64) * 1000
        found: Mask = (members.of != NEVER) & (members.of <= sent + self._ahead)
        return found

"""`Side`: the raw records of one topic that a join, or a topic of distinct events, is made of, and what became of each of them beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from services.audit.aggregates.letters import FOREVER, Known, Letters
from services.audit.aggregates.raw import most_ahead
from services.audit.hops.derived import CLOCKS_DIFFER_MS
from services.audit.records.groups import MINUTE, NEVER
from services.audit.records.pairs import Halves
from services.audit.records.records import Records
from services.audit.records.window import Where, Window
from services.audit.values.place import Codes, code, concatenated, offset_of, partition_of

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Given:
    """What was read of one raw topic: the `records` up to the cut, those that came after it as far as pairs may have them, the letters, and the rest."""

    window: Window
    records: Sequence[Records]
    later: Sequence[Records]
    dead: Letters
    late: Letters
    known: Known


class Side:
    """One entry of each array for each record, in the order of their places. `good` are those that can be read and are not from the future,
    `takes_part` those of them that no filter leaves out. Of these, all pairs of those that `must` be joined are there; the pairs of
    others that are neither `dead` nor `late` may be.
    """

    def __init__(self, topic: str, given: Given, *, is_rebuilt: bool) -> None:
        """`topic`: the one that is made of them."""
        self.window, self.known, self.dead_letters, self.late_letters = (
            given.window,
            given.known,
            given.dead,
            given.late,
        )
        parts = [*given.records, *given.later]
        at = concatenated([part.at for part in parts], np.int64)
        order = np.argsort(at, kind="stable")
        self.at = at[order]
        self.is_later = np.arange(len(at))[order] >= sum(map(len, given.records))
        self.payload = concatenated([part.payload for part in parts], np.uint64)[order]
        self.sent_ms = concatenated([part.sent_ms for part in parts], np.int64)[order]
        self._was_redriven = concatenated([part.redriven for part in parts], np.bool_)[order]
        halves = Halves.joined([part.halves[topic] for part in parts])
        self.by, self.of, self.says = halves.by[order], halves.of[order], halves.says[order]
        self.can_be_read = self.of != NEVER
        self._ahead = most_ahead(self.known.late_after_minutes)
        self.good: Mask = self.can_be_read & (self.of <= self.sent_ms * 1000 + self._ahead)
        self.takes_part = self.good & ~halves.left_out[order]
        self.dead, self.late = (np.isin(self.at, each.source) for each in (given.dead, given.late))
        self.purged = np.isin(self.at, self.known.purged) & ~self.dead
        # Of a letter that expired nothing is left, but that letters did.
        self.expired = self._expired(given.late) & ~self.late
        excused = self.dead | self.late | self.purged | self.expired | self.is_later
        self.must: Mask = self.takes_part & ~excused
        # A run that computed everything again had batches of its own: what came late to the one before may have pairs of it.
        self.is_wrong_with_pairs = self.dead if is_rebuilt else self.dead | self.late

    @property
    def newest_deleted(self) -> int:
        """No record that was deleted before it was audited is of a later time, in microseconds; NEVER if there is none."""
        # What an earlier audit has looked at is known.
        deleted = [each for each, span in self.window.spans.items() if span.low > span.audited]
        return max([NEVER, *map(self._deleted_before, deleted)])

    @property
    def newest(self) -> int:
        """No record that the pipeline may have seen is of a later time, in microseconds; NEVER if it saw none."""
        before = self.known.newest_before
        newest = max(int(self.of[self.good].max(initial=NEVER)), NEVER if before is None else before)
        return max(newest, self.newest_deleted)

    @property
    def later_from(self) -> int:
        """No record that came after the cut and may have pairs is of an earlier time, in microseconds; FOREVER if there is none."""
        return int(self.of[self.is_later & self.takes_part & ~self.is_wrong_with_pairs].min(initial=FOREVER))

    def sent_until(self, sent_ms: int) -> int:
        """No good event of a record that was sent by then is of a later time, in microseconds."""
        return (sent_ms + CLOCKS_DIFFER_MS) * 1000 + self._ahead

    def open_from(self, over: int) -> dict[int, int]:
        """By partition the first offset of a record before the cut that may have pairs to come; `over`: until that time there are none."""
        return first_offsets(self.window, self.at[self.takes_part & ~self.is_wrong_with_pairs & (self.of > over)])

    def found(self, places: Codes) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int8]]:
        """For each place the row of its record, 0 if it is not there, and a `Where`: INSIDE if it is, BEFORE or GONE if it was, or NOWHERE."""
        rows = np.minimum(np.searchsorted(self.at, places), max(0, len(self.at) - 1))
        is_there = self.at[rows] == places if len(self.at) else np.zeros(len(places), np.bool_)
        where = self.window.where(places)
        # What lies inside and is no record is the marker of a transaction.
        where[where == Where.INSIDE] = Where.NOWHERE
        where[is_there] = Where.INSIDE
        return np.where(is_there, rows, 0), where

    def expired_letters_of(self, letters: Letters) -> Mask:
        """Those whose letters, which have their time, may be deleted by now."""
        return self._expired(letters)

    def fault(self, row: int) -> str:
        """What is wrong with one that is not good, behind "it"."""
        return "is from the future, more than its pipeline takes" if self.can_be_read[row] else "can't be read"

    def _expired(self, letters: Letters) -> Mask:
        if not letters.has_deleted:
            return np.zeros(len(self.at), np.bool_)
        old: Mask = self.sent_ms <= letters.kept_since_ms + CLOCKS_DIFFER_MS
        return old

    def _deleted_before(self, partition: int) -> int:
        """The time that no deleted record of this partition goes beyond. What retention deletes was sent before what it leaves, or before all that
        the contract promises to keep; where it leaves nothing, that alone is known.
        """
        # What was redriven is old, and lies among the new.
        left = self.sent_ms[(partition_of(self.at) == partition) & ~self._was_redriven]
        return self.sent_until(max([self.known.raw_kept_since_ms, *left[:1].tolist()]))


def watermark_at_most(*sides: Side) -> int:
    """No watermark of the pipeline was later, in microseconds since 1970: it is that of the topic which is behind, or ahead, as the contract says."""
    known = sides[0].known
    chosen = min if known.watermark_of == "slower" else max
    newest = chosen(side.newest for side in sides)
    return newest if newest == NEVER else newest - known.late_after_minutes * MINUTE


def not_before(places: Codes, starts: Mapping[int, int]) -> Mask:
    """Which of them are places in the topic, and not before the start of their partition."""
    found: Mask = places >= 0
    for partition, start in starts.items():
        found &= (partition_of(places) != partition) | (offset_of(places) >= start)
    return found


def first_offsets(window: Window, at: Codes) -> dict[int, int]:
    """By partition the first offset of these places, the end of the window where there is none."""
    return {
        partition: offset_of(int(at[partition_of(at) == partition].min(initial=code(partition, span.end))))
        for partition, span in window.spans.items()
    }

"""`SetAside`: the raw records of one topic that were set aside, and what is wrong with their letters."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from services.audit.aggregates.letters import Letters
from services.audit.joins.sheet import Sheet
from services.audit.joins.side import Mask, Side
from services.audit.records.window import Where
from services.audit.values.finding import Finding, Kind
from services.audit.values.place import coordinate, named_in_vain


class SetAside:
    """Compares the letters with the raw records that they are of."""

    def __init__(self, sheet: Sheet, side: Side, watermark_at_most: int) -> None:
        """`watermark_at_most`: no watermark was later, in microseconds since 1970."""
        self._sheet, self._side, self._watermark = sheet, side, watermark_at_most

    def findings(self, *, is_rebuilt: bool) -> Iterator[Finding]:
        """What is wrong. After a rebuild a record may have several letters."""
        side = self._side
        for letters in (side.dead_letters, side.late_letters):
            yield from self._wrong_letters(letters, is_rebuilt=is_rebuilt)
        dead, late = side.dead_letters.topic, side.late_letters.topic
        is_sent_back = np.isin(side.at, side.known.redriven)
        yield from self._each(
            side.dead & side.good & ~is_sent_back, "set aside", f"{dead} has it, and it is good: redrive it"
        )
        yield from self._each(side.dead & side.late, "doubled", f"in {late} and in {dead}")
        is_late = side.late & ~side.dead
        for row in np.flatnonzero(is_late & ~side.good).tolist():
            yield self._of(row, "phantom", f"{late} has it, and it {side.fault(row)}")
        yield from self._each(
            is_late & side.good & ~side.takes_part, "phantom", f"{late} has it, and a filter leaves it out"
        )
        # The run before a rebuild may have had another lateness, or another topic that moves the watermark.
        if not is_rebuilt:
            # Of one that came behind the cut, what made it late may not have been read.
            in_time = is_late & side.takes_part & ~side.is_later & (side.of > self._watermark)
            what = f"{late} has it, and no events are so new that it is late"
            yield from self._each(in_time, "set aside", what)
        yield from self._unaccounted()
        self._note()

    def _wrong_letters(self, letters: Letters, *, is_rebuilt: bool) -> Iterator[Finding]:
        """Letters of no raw record, more than one of a raw record, and with other bytes than its."""
        side, window = self._side, self._side.window
        rows, where = side.found(letters.source)
        ahead = window.where(letters.source, side.known.latest) == Where.AHEAD
        for index in np.flatnonzero((where == Where.NOWHERE) & ~ahead).tolist():
            source, own = int(letters.source[index]), coordinate(letters.topic, int(letters.at[index]))
            named, why = named_in_vain(window.topic, source, own)
            yield self._sheet.of_raw("phantom", window, source, why, named)
        sources, counts = np.unique(letters.source[(where != Where.NOWHERE) | ahead], return_counts=True)
        for source, count in zip(sources[counts > 1].tolist(), counts[counts > 1].tolist(), strict=True):
            if not is_rebuilt:
                yield self._sheet.of_raw("doubled", window, source, f"{count} times in {letters.topic}")
        if is_rebuilt:
            self._sheet.count(window, sources, counts > 1, "set aside again, by a rebuild")
        inside = np.flatnonzero(where == Where.INSIDE)
        differs = side.payload[rows[inside]] != letters.payload[inside]
        for index in inside[differs].tolist():
            own = coordinate(letters.topic, int(letters.at[index]))
            yield self._sheet.of_raw("changed", window, int(letters.source[index]), f"key or value differs in {own}")
        gone = where == Where.GONE
        self._sheet.count(window, letters.source, gone, "set aside, of records that are deleted by now, not compared")

    def _unaccounted(self) -> Iterator[Finding]:
        """Bad records without a letter. Of those that came after the cut it may still come."""
        side = self._side
        left = ~side.good & ~side.dead & ~side.late & ~side.is_later & ~np.isin(side.at, side.known.purged)
        expired = left & side.expired_letters_of(side.dead_letters)
        self._sheet.count(side.window, side.at, expired, "that are bad, and whose dead letters are deleted by now")
        for row in np.flatnonzero(left & ~expired).tolist():
            yield self._of(row, "lost", f"it {side.fault(row)}, and is not in {side.dead_letters.topic}")

    def _note(self) -> None:
        """In the tallies why records have no pairs."""
        side = self._side
        before = ~side.is_later
        self._sheet.count(side.window, side.at, before)
        notes = {
            "dead letters": side.dead,
            "purged dead letters": side.purged,
            "late": side.late,
            "that may have been late, for late records are deleted by now": side.expired & side.takes_part & ~side.dead,
            "left out before, by the condition": side.good & ~side.takes_part & ~side.dead & ~side.late,
        }
        for text, mask in notes.items():
            self._sheet.count(side.window, side.at, mask & before, text)

    def _each(self, mask: Mask, kind: Kind, detail: str) -> Iterator[Finding]:
        for row in np.flatnonzero(mask).tolist():
            yield self._of(row, kind, detail)

    def _of(self, row: int, kind: Kind, detail: str) -> Finding:
        return self._sheet.of_raw(kind, self._side.window, int(self._side.at[row]), detail)

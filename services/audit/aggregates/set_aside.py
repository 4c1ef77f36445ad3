"""`SetAside`: the raw records that an aggregate has not counted, and what is wrong with their letters."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from services.audit.aggregates.letters import FOREVER, Letters
from services.audit.aggregates.raw import RawRecords
from services.audit.aggregates.sheet import Sheet
from services.audit.records.groups import MINUTE, NEVER
from services.audit.records.window import Where
from services.audit.values.finding import Finding
from services.audit.values.place import coordinate, named_in_vain, partition_of


class SetAside:
    """Compares the letters with the raw records that they are of."""

    def __init__(self, sheet: Sheet, raw: RawRecords, dead: Letters, late: Letters) -> None:
        self._sheet, self._raw, self._dead, self._late = sheet, raw, dead, late

    def findings(self, *, is_rebuilt: bool) -> Iterator[Finding]:
        """What is wrong. After a rebuild a record may have several letters."""
        for letters in (self._dead, self._late):
            yield from self._wrong_letters(letters, is_rebuilt=is_rebuilt)
        yield from self._wrongly_dead()
        yield from self._wrongly_late(is_rebuilt=is_rebuilt)
        yield from self._unaccounted()

    def _wrong_letters(self, letters: Letters, *, is_rebuilt: bool) -> Iterator[Finding]:
        """Letters of no raw record, more than one of a raw record, and with other bytes than its."""
        where = self._raw.where(letters)
        for index in np.flatnonzero(where == Where.NOWHERE).tolist():
            source, own = int(letters.source[index]), coordinate(letters.topic, int(letters.at[index]))
            named, why = named_in_vain(self._raw.window.topic, source, own)
            yield self._sheet.of_raw("phantom", source, named, why)
        sources, counts = np.unique(letters.source[where != Where.NOWHERE], return_counts=True)
        for source, count in zip(sources[counts > 1].tolist(), counts[counts > 1].tolist(), strict=True):
            if not is_rebuilt:
                yield self._sheet.of_place("doubled", source, f"{count} times in {letters.topic}")
            elif partition_of(source) in self._raw.window.spans:
                self._sheet.tally(self._raw.window, partition_of(source)).notes["set aside again, by a rebuild"] += (
                    count - 1
                )
        inside = np.flatnonzero(where == Where.INSIDE)
        differs = self._raw.payload[np.searchsorted(self._raw.at, letters.source[inside])] != letters.payload[inside]
        for index in inside[differs].tolist():
            own = coordinate(letters.topic, int(letters.at[index]))
            yield self._sheet.of_place("changed", int(letters.source[index]), f"key or value differs in {own}")
        for partition in self._raw.window.spans:
            gone = (where == Where.GONE) & (partition_of(letters.source) == partition)
            note = "set aside, of records that are deleted by now, not compared"
            self._sheet.tally(self._raw.window, partition).notes[note] += int(gone.sum())

    def _wrongly_dead(self) -> Iterator[Finding]:
        """Dead letters of good records."""
        dead = np.unique(self._dead.source[self._raw.where(self._dead) == Where.INSIDE])
        place = np.searchsorted(self._raw.at, dead)
        for source in dead[self._raw.good[place] & ~np.isin(dead, self._raw.known.redriven)].tolist():
            yield self._sheet.of_place("set aside", source, f"{self._dead.topic} has it, and it is good: redrive it")

    def _wrongly_late(self, *, is_rebuilt: bool) -> Iterator[Finding]:
        """Late records that are bad, belong to no group, or have a window that can't be over; not after a rebuild, for the run before may have had another
        lateness, or another topic that moves the watermark.
        """
        late = np.unique(self._late.source[self._raw.where(self._late) == Where.INSIDE])
        place = np.searchsorted(self._raw.at, late)
        is_member = self._raw.members.belong[place]
        dead = np.isin(late, self._dead.source)
        topic = self._late.topic
        for source in late[dead].tolist():
            yield self._sheet.of_place("doubled", source, f"in {topic} and in {self._dead.topic}")
        for source in late[~self._raw.good[place] & ~dead].tolist():
            yield self._sheet.of_place("phantom", source, f"{topic} has it, and it {self._raw.fault(source)}")
        for source in late[self._raw.good[place] & ~is_member].tolist():
            yield self._sheet.of_place("phantom", source, f"{topic} has it, and it belongs to no group")
        newest = self._raw.newest_of_all
        if newest == FOREVER or is_rebuilt:
            return
        # Its window ends behind it, and had ended before the newest event less the lateness.
        in_time = is_member & self._raw.good[place]
        over = self._raw.over_for(self._late)[place]
        ends = np.maximum(self._raw.members.earliest_end[place], np.where(over == FOREVER, NEVER, over))
        in_time &= ends > newest - self._raw.known.late_after_minutes * MINUTE
        for source in late[in_time].tolist():
            yield self._sheet.of_place(
                "set aside", source, f"{topic} has it, and no event is so new that its window is over"
            )

    def _unaccounted(self) -> Iterator[Finding]:
        left = ~self._raw.good & ~self._raw.named(self._dead) & ~self._raw.named(self._late)
        left &= ~np.isin(self._raw.at, self._raw.known.purged)
        expired = left & self._raw.expired(self._dead)
        for partition in self._raw.window.spans:
            note = "that are bad, and whose dead letters are deleted by now"
            count = int(np.sum(expired & (partition_of(self._raw.at) == partition)))
            self._sheet.tally(self._raw.window, partition).notes[note] += count
        for source in self._raw.at[left & ~expired].tolist():
            yield self._sheet.of_place(
                "lost", source, f"it {self._raw.fault(source)}, and is not in {self._dead.topic}"
            )

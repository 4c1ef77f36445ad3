"""`Named`: the raw records that joined records, or distinct events, name, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from services.audit.joins.made import MadePairs
from services.audit.joins.partners import Rows, picked
from services.audit.joins.sheet import Sheet
from services.audit.joins.side import Mask, Side
from services.audit.records.pairs import ALONE
from services.audit.records.window import Where
from services.audit.values.digest import NULL
from services.audit.values.finding import Finding, Kind
from services.audit.values.place import coordinate

_NOTHING = np.uint64(0)


class Named:
    """One entry of each array for each made record: the rows of the raw records that it names, in their sides. `holds`, after the findings: which
    ones are of raw records that have rightly come together, or of one alone, as far as these are there still.
    """

    def __init__(
        self,
        sheet: Sheet,
        made: MadePairs,
        sides: Sequence[Side],
        nothing: np.uint64 = _NOTHING,
        apart: tuple[int, int] = (0, 0),
    ) -> None:
        """`sides`: those of both topics of a join, or the one. `nothing`: what is said of a second record that there is none of; `apart`: the least and
        the most that the times of two are from each other, in microseconds.
        """
        self._sheet, self._made, self._sides = sheet, made, sides
        self._nothing, self._apart = nothing, apart
        self.first, self._where_first = sides[0].found(made.pairs.first)
        self.second = np.zeros(len(made.at), np.int64)
        self._where_second = np.full(len(made.at), Where.NOWHERE, np.int8)
        if len(sides) > 1:
            self.second, self._where_second = sides[1].found(made.pairs.second)
        self.holds: Mask = made.readable.copy()
        self.has_first: Mask = self._where_first == Where.INSIDE
        self.has_second: Mask = self._where_second == Where.INSIDE

    def findings(self) -> Iterator[Finding]:
        """Records that can't be read, or of raw records that are not there, are bad, set aside, left out, or no pair; and other values."""
        for row in np.flatnonzero(~self._made.readable).tolist():
            yield self._sheet.of_made("phantom", int(self._made.at[row]), "it can't be decoded")
        yield from self._of_nothing()
        for side, rows, is_there in self._each_side():
            dead, late = side.dead_letters.topic, side.late_letters.topic
            topic = side.window.topic
            for row in self._left(is_there & ~picked(side.good, rows)):
                what = f"it is of {coordinate(topic, int(side.at[rows[row]]))}, which {side.fault(int(rows[row]))}"
                yield self._sheet.of_made("phantom", int(self._made.at[row]), what)
            wrong = is_there & picked(side.is_wrong_with_pairs, rows)
            yield from self._told(wrong & picked(side.dead, rows), "doubled", side, rows, f"is in {dead}")
            yield from self._told(wrong, "doubled", side, rows, f"is in {late}")
            yield from self._told(
                is_there & ~picked(side.takes_part, rows), "phantom", side, rows, "a filter leaves out"
            )
            is_late = self.holds & is_there & picked(side.late, rows)
            note = "of late records, which a rebuild may have found in time"
            self._sheet.count(self._sheet.target, self._made.at, is_late, note)
        if len(self._sides) > 1:
            yield from self._no_pairs()
        yield from self._too_many()
        yield from self._other_values()
        where = (self._where_first, self._where_second)
        gone, before = (self.holds & ((where[0] == of) | (where[1] == of)) for of in (Where.GONE, Where.BEFORE))
        note = "of records that are deleted by now, compared as far as these are there"
        self._sheet.count(self._sheet.target, self._made.at, gone, note)
        note = "of records that an earlier audit has looked at, compared as far as they are read again"
        self._sheet.count(self._sheet.target, self._made.at, before & ~gone, note)

    def _each_side(self) -> Iterator[tuple[Side, Rows, Mask]]:
        of = (self.first, self.has_first), (self.second, self.has_second)
        for side, (rows, is_there) in zip(self._sides, of, strict=False):
            yield side, rows, is_there

    def _of_nothing(self) -> Iterator[Finding]:
        places = (self._made.pairs.first, self._where_first), (self._made.pairs.second, self._where_second)
        for side, (named, where) in zip(self._sides, places, strict=False):
            for row in self._left((where == Where.NOWHERE) & (named != ALONE)):
                why = f"it names no record of {side.window.topic}"
                if named[row] >= 0:
                    why = f"it names {coordinate(side.window.topic, int(named[row]))}, but there is no such record"
                yield self._sheet.of_made("phantom", int(self._made.at[row]), why)

    def _no_pairs(self) -> Iterator[Finding]:
        first, second = self._sides
        both = self.has_first & self.has_second
        by, other = picked(first.by, self.first), picked(second.by, self.second)
        yield from self._leave(
            both & ((by != other) | (by == NULL)), "phantom", "its two records differ in what is to be equal"
        )
        apart = picked(second.of, self.second) - picked(first.of, self.first)
        beyond = both & ((apart < self._apart[0]) | (apart > self._apart[1]))
        yield from self._leave(beyond, "phantom", "the times of its two records are not within the bounds")

    def _too_many(self) -> Iterator[Finding]:
        """Records that came since an earlier audit, of such as had all of theirs by then."""
        came = (self._sheet.target.where(self._made.at) == Where.INSIDE) & ~self._made.redriven
        of_before = (self._where_first == Where.BEFORE) | (self._where_second == Where.BEFORE)
        why = "an earlier audit has seen all that can come of a record that it names"
        yield from self._leave(came & of_before, "doubled", why)

    def _other_values(self) -> Iterator[Finding]:
        pairs, at, holds = self._made.pairs, self._made.at, self.holds & ~self._made.is_older
        said = (pairs.says_first, self.first, self.has_first), (pairs.says_second, self.second, self.has_second)
        for side, (says, rows, is_there) in zip(self._sides, said, strict=False):
            for row in np.flatnonzero(holds & is_there & (picked(side.says, rows) != says)).tolist():
                what = f"a field differs from {coordinate(side.window.topic, int(side.at[rows[row]]))}"
                yield self._sheet.of_made("changed", int(at[row]), what)
        for row in np.flatnonzero(holds & self._made.is_alone & (pairs.says_second != self._nothing)).tolist():
            what = f"it says something of a record of {self._sides[-1].window.topic}, and its id names none"
            yield self._sheet.of_made("changed", int(at[row]), what)

        note = "of a schema version without some carried fields, values not compared"
        self._sheet.count(self._sheet.target, at, self.holds & self._made.is_older, note)

    def _told(self, wrong: Mask, kind: Kind, side: Side, rows: Rows, why: str) -> Iterator[Finding]:
        for row in self._left(wrong):
            what = f"it is of {coordinate(side.window.topic, int(side.at[rows[row]]))}, which {why}"
            yield self._sheet.of_made(kind, int(self._made.at[row]), what)

    def _leave(self, wrong: Mask, kind: Kind, why: str) -> Iterator[Finding]:
        for row in self._left(wrong):
            yield self._sheet.of_made(kind, int(self._made.at[row]), why)

    def _left(self, wrong: Mask) -> list[int]:
        """The rows that are wrong and were not so before; they hold no more."""
        rows = np.flatnonzero(wrong & self.holds)
        self.holds[rows] = False
        found: list[int] = rows.tolist()
        return found

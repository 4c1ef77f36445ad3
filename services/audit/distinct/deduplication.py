"""`Deduplication`: of the raw records of each event one is let through, or all are late, or dead letters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from services.audit.aggregates.letters import Letters
from services.audit.hops.derived import CLOCKS_DIFFER_MS
from services.audit.joins.made import MadePairs
from services.audit.joins.named import Named
from services.audit.joins.partners import Partners, Rows, picked
from services.audit.joins.set_aside import SetAside
from services.audit.joins.sheet import Sheet
from services.audit.joins.side import Given, Mask, Side, first_offsets, not_before, watermark_at_most
from services.audit.records.groups import MINUTE, NEVER
from services.audit.records.pairs import Halves
from services.audit.records.records import Records
from services.audit.records.window import Window
from services.audit.values.digest import NULL, Digests
from services.audit.values.finding import Finding, Tally
from services.audit.values.place import Codes, coordinate, partition_of


class _Places(NamedTuple):
    """Of each event, by its digest: the first and the last place of the raw records of it that were let through."""

    of: Digests
    first: Codes
    last: Codes

    def found(self, of: Digests) -> tuple[Mask, Rows]:
        """Which of these events are there, and where in the arrays; 0 of one that is not."""
        rows = np.minimum(np.searchsorted(self.of, of), max(0, len(self.of) - 1))
        is_there: Mask = picked(self.of, rows) == of if len(self.of) else np.zeros(len(of), np.bool_)
        return is_there, np.where(is_there, rows, 0)


class Deduplication:
    """Compares a raw topic with the records that were let through. Pure: arrays in, findings and tallies out.

    These may be ahead of the cut. One of a raw record that came after it is looked at, and need not be there.
    """

    def __init__(
        self,
        given: Given,
        target: Window,
        made: Sequence[Records],
        strangers: Letters,
        *,
        watermark: int = NEVER,
        begun_ms: int = 0,
        is_rebuilt: bool = False,
    ) -> None:
        """What was read of the raw topic, and `made` of it; what of either an earlier audit has looked at, and can't matter any more, is not among it.
        The rest as in `services.audit.joins.joining`.
        """
        self._sheet = Sheet([given.window], target)
        self._strangers, self._watermark = strangers, watermark
        self._made = MadePairs(self._sheet, made, begun_ms)
        self.is_rebuilt = is_rebuilt or self._made.is_rebuilt
        self._raw = Side(target.topic, given, is_rebuilt=self.is_rebuilt)
        self._named = Named(self._sheet, self._made, (self._raw,))
        self._own = Halves.joined([part.halves[target.topic] for part in made])
        self._lateness = given.known.late_after_minutes * MINUTE

    @property
    def tallies(self) -> Mapping[str, Tally]:
        """By topic and partition."""
        return self._sheet.tallies

    @property
    def newest(self) -> tuple[int, ...]:
        """Of the raw topic: see `Side`."""
        return (self._raw.newest,)

    def open(self) -> dict[str, dict[int, int]]:
        """By topic and partition from where on an audit reads that looks at what comes after the cut: of the raw topic nothing again; of the other
        what raw records after the cut may be left out for.
        """
        ends = {partition: span.end for partition, span in self._raw.window.spans.items()}
        # What is forgotten by this watermark was there when records came that the pipeline has taken in, but this audit has not.
        for_later = np.isin(self._own.by, self._raw.by[self._raw.is_later])
        is_open = not_before(self._made.pairs.first, ends) | for_later
        if self._watermark != NEVER:
            is_open |= self._own.of + self._lateness > self._watermark
        else:
            is_open |= True
        target = self._sheet.target
        return {
            self._raw.window.topic: ends,
            target.topic: first_offsets(target, self._made.at[is_open]),
        }

    def findings(self) -> Iterator[Finding]:
        """What is wrong; the tallies are full afterwards."""
        sheet, made, raw = self._sheet, self._made, self._raw
        sheet.note_deleted(raw.window)
        yield from SetAside(sheet, raw, watermark_at_most(raw)).findings(is_rebuilt=self.is_rebuilt)
        sheet.count(sheet.target, made.at, np.ones(len(made.at), np.bool_))
        yield from sheet.strange(self._strangers)
        yield from made.findings()
        yield from self._named.findings()
        yield from self.among_each_other()
        yield from self.missing()

    def among_each_other(self) -> Iterator[Finding]:
        """What is wrong with records by others that were made."""
        yield from self._let_through_again()
        yield from self._in_another_order()

    def by_this_run(self) -> Rows:
        """The records that the run which goes on has let through, each id once."""
        rows = np.flatnonzero(self._named.holds & ~self._made.is_old & ~self._made.redriven)
        _, firsts = np.unique(self._made.pairs.first[rows], return_index=True)
        found: Rows = rows[np.sort(firsts)]
        return found

    def _let_through_again(self) -> Iterator[Finding]:
        """Two of one event, as long as it must have been remembered."""
        made, own, rows = self._made, self._own, self.by_this_run()
        rows = rows[np.lexsort((own.of[rows], own.by[rows]))]
        by, of = own.by[rows], own.of[rows]
        for index in np.flatnonzero((by[1:] == by[:-1]) & (of[1:] - of[:-1] <= self._lateness)).tolist():
            pair = rows[index : index + 2].tolist()
            before, again = sorted(pair, key=lambda row: (int(made.sent_ms[row]), int(made.at[row])))
            what = f"it is of the same event as {made.own(before)}, and not so much later that this is forgotten"
            yield self._sheet.of_made("doubled", int(made.at[again]), what)

    def _in_another_order(self) -> Iterator[Finding]:
        """Records of one key, as far as their raw records lie in one partition."""
        made, rows = self._made, self.by_this_run()
        rows = rows[made.key[rows] != NULL]
        first = made.pairs.first
        rows = rows[np.lexsort((made.at[rows], partition_of(first[rows]), made.key[rows]))]
        one, other = rows[:-1], rows[1:]
        is_behind = (made.key[one] == made.key[other]) & (partition_of(first[one]) == partition_of(first[other]))
        for index in np.flatnonzero(is_behind & (first[one] > first[other])).tolist():
            what = f"{made.own(int(one[index]))} has its key, and is of a later record"
            yield self._sheet.of_made("out of order", int(made.at[other[index]]), what)

    def is_named(self) -> Mask:
        """Of which raw records there is one."""
        found, named = np.zeros(len(self._raw.at), np.bool_), self._named
        found[named.first[named.holds & named.has_first]] = True
        return found

    def missing(self) -> Iterator[Finding]:
        """Raw records that were neither let through nor left out for another of their event."""
        raw, is_named = self._raw, self.is_named()
        self._sheet.count(raw.window, raw.at, raw.must & is_named, "let through")
        rows = np.flatnonzero(raw.must & ~is_named)
        there = self._let_through()
        is_there, of = there.found(raw.by[rows])
        is_deleted = self._may_be_deleted(rows)
        if not self.is_rebuilt:
            is_known = is_there & ~is_deleted
            yield from self._came_first(rows[is_known], there, of[is_known])
        self._note_left_out(rows[is_there])
        self._note(rows[~is_there & is_deleted], "whose event is deleted by now")
        for row in rows[~is_there & ~is_deleted].tolist():
            what = f"neither it nor another record of its event is in {self._sheet.target.topic}"
            yield self._sheet.of_raw("lost", raw.window, int(raw.at[row]), what)

    def _let_through(self) -> _Places:
        rows = np.flatnonzero(self._named.holds)
        places, by = self._made.pairs.first[rows], self._own.by[rows]
        order = np.lexsort((places, by))
        of, firsts = np.unique(by[order], return_index=True)
        lasts = np.append(firsts[1:], len(order))[: len(firsts)] - 1
        return _Places(of, places[order][firsts], places[order][lasts])

    def _came_first(self, rows: Rows, there: _Places, of: Rows) -> Iterator[Finding]:
        """Those that lie before all of their event that were let through, in the one partition where these lie: they were read before them."""
        raw = self._raw
        first, last = picked(there.first, of), picked(there.last, of)
        is_passed_over = (first > raw.at[rows]) & (partition_of(last) == partition_of(raw.at[rows]))
        for index in np.flatnonzero(is_passed_over).tolist():
            what = f"{coordinate(raw.window.topic, int(first[index]))} was let through in its place, and came after it"
            yield self._sheet.of_raw("out of order", raw.window, int(raw.at[rows[index]]), what)

    def _note_left_out(self, rows: Rows) -> None:
        raw, held = self._raw, np.flatnonzero(self._named.holds)
        self._note(rows, "left out, for another record of the event is there")
        others = Partners(self._own.by, self._own.of, held)
        begin, end = others.between(raw.by[rows], raw.of[rows] - self._lateness, raw.of[rows] + self._lateness)
        self._note(rows[begin == end], "of them of a time further from the other's than the lateness")

    def _may_be_deleted(self, rows: Rows) -> Mask:
        """Of which of them a record of their event may have been let through that is deleted by now, or was made of a raw record that is."""
        raw, kept_since_ms = self._raw, self._raw.known.kept_since_ms
        forgotten = self._made.may_be_forgotten(raw.sent_ms, kept_since_ms, CLOCKS_DIFFER_MS)
        found: Mask = forgotten[rows] | np.isin(raw.by[rows], raw.by[forgotten & raw.takes_part])
        # Those that were there for a clean audit, and whose raw records are not read again.
        open_until = self._made.open_deleted_until(kept_since_ms)
        upto = max(raw.newest_deleted, NEVER if open_until is None else raw.sent_until(open_until))
        # An event is remembered until one comes that is later by twice the lateness. On a quiet topic that may take longer.
        return found if upto == NEVER else found | (raw.of[rows] <= upto + 2 * self._lateness)

    def _note(self, rows: Rows, text: str) -> None:
        self._sheet.count(self._raw.window, self._raw.at[rows], np.ones(len(rows), np.bool_), text)

"""`Recount`: windows of one length, counted again."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from services.audit.aggregates.expected import Expected
from services.audit.aggregates.grid import Grid, paired
from services.audit.aggregates.letters import FOREVER, Letters
from services.audit.aggregates.made import MadeGroups
from services.audit.aggregates.raw import RawRecords
from services.audit.aggregates.sheet import Sheet
from services.audit.aggregates.windows import Mask, covered, inside, instant_text
from services.audit.records.groups import NEVER
from services.audit.values.finding import Finding
from services.audit.values.place import partition_of

_LATEST = 253_402_300_800_000_000
"""The end of the year 9999, in microseconds since 1970."""


class Recount:
    """Compares what groups count with the raw records that belong there."""

    def __init__(
        self, sheet: Sheet, raw: RawRecords, made: MadeGroups, late: Letters, *, counts: str, appends: bool
    ) -> None:
        self._sheet, self._raw, self._made, self._late = sheet, raw, made, late
        self._counts, self._appends = counts, appends

    def findings(self, expected: Expected) -> Iterator[Finding]:
        """Groups that count more or fewer than belong there, and raw records without a group."""
        yield from self._wrong_counts(expected.must, expected.may, expected.partly)
        yield from self._without_group(expected.must, expected.partly)

    def _wrong_counts(self, must: Mask, may: Mask, partly: Mask) -> Iterator[Finding]:
        newest, groups = self._made.newest(), self._made.groups
        of_groups = groups.by[newest], groups.begins[newest], groups.ends[newest]
        counted = must | partly
        of = self._raw.members.of[counted]
        # All windows that one lies in end by its time and their length.
        longest = of + int((groups.ends[newest] - groups.begins[newest]).min(initial=FOREVER - _LATEST))
        told = np.minimum(np.where(partly, self._raw.over_for(self._late), NEVER)[counted], longest)
        upto = np.maximum(of, told)
        least = inside(self._raw.members.by[counted], of, *of_groups, upto)
        later = self._raw.later.belong & self._raw.later_good
        by = np.concatenate([self._raw.members.by[may], self._raw.later.by[later]])
        of = np.concatenate([self._raw.members.of[may], self._raw.later.of[later]])
        most = least + inside(by, of, *of_groups)
        said, total = self._made.counts[newest], self._made.total[newest]
        whole = groups.begins[newest] > self._raw.unread_before
        notes = {
            "groups counted again": whole & (most == least),
            "groups counted again within bounds, for records came meanwhile or may have been set aside": whole
            & (most > least),
            "groups with records of before, looked at for losses only": ~whole & (least > 0),
            "groups with no records to be read, not looked at": ~whole & (least == 0),
        }
        for partition in self._sheet.target.spans:
            tally, here = (
                self._sheet.tally(self._sheet.target, partition),
                partition_of(self._made.at[newest]) == partition,
            )
            tally.records += int(np.sum(here & (whole | (least > 0))))
            for text, mask in notes.items():
                tally.notes[text] += int(np.sum(mask & here))
        for index in np.flatnonzero(said < least).tolist():
            what = f"{self._counts} is {said[index]}, and {least[index]} raw records belong there"
            yield self._made.finding("lost", int(newest[index]), what)
        # Of two topics a group may have records of the other only.
        for index in np.flatnonzero(whole & (most == 0) & (said >= least) & ((said > 0) | (total == 0))).tolist():
            yield self._made.finding(
                "phantom", int(newest[index]), f"{self._counts} is {said[index]}, and no raw record belongs there"
            )
        for index in np.flatnonzero(whole & (most > 0) & (said > most)).tolist():
            at_most = "" if most[index] == least[index] else "at most "
            what = f"{self._counts} is {said[index]}, and {at_most}{most[index]} raw records belong there"
            yield self._made.finding("doubled", int(newest[index]), what)

    def _without_group(self, must: Mask, partly: Mask) -> Iterator[Finding]:
        """Groups that are not there: each window that raw records belong to, as far as groups that are there tell windows. Of those that are late for some of their
        windows, and belong to the others, each window that is not over.
        """
        newest, groups = self._made.newest(), self._made.groups
        bounds = groups.by[newest], groups.begins[newest], groups.ends[newest]
        rows = np.flatnonzero(must)
        alone = ~covered(self._raw.members.by[rows], self._raw.members.of[rows], *bounds)
        forgotten = self._made.forgotten(self._raw.sent_ms[rows], self._raw.known.kept_since_ms)
        for partition in self._raw.window.spans:
            here, tally = partition_of(self._raw.at[rows]) == partition, self._sheet.tally(self._raw.window, partition)
            tally.notes["whose groups are deleted by now, not compared"] += int(np.sum(alone & forgotten & here))
        # Another run may have had other windows.
        now = groups.run[newest] == groups.run[newest[np.argmax(self._made.sent_ms[newest])]] if len(newest) else newest
        grid = Grid.of(bounds[1][now], bounds[2][now])
        if grid is None:
            # Nothing tells windows: what is in none has no group.
            length = int((bounds[2] - bounds[1]).max(initial=0))
            rows = rows[alone & ~forgotten]
            by, begins, firsts = self._raw.members.by[rows], np.zeros(len(rows), np.int64), np.arange(len(rows))
            by, firsts = np.unique(by, return_index=True)
            begins, ends = np.full(len(by), NEVER), self._raw.members.of[rows[firsts]] + length
            counts = inside(
                self._raw.members.by[rows], self._raw.members.of[rows], by, begins, np.full(len(by), FOREVER)
            )
        else:
            rows = rows[~forgotten]
            by, begins, firsts = grid.windows(self._raw.members.by[rows], self._raw.members.of[rows])
            late, more = np.flatnonzero(partly), len(rows)
            late = late[~self._made.forgotten(self._raw.sent_ms[late], self._raw.known.kept_since_ms)]
            late_by, late_begins, late_firsts = grid.later_windows(
                self._raw.members.by[late], self._raw.members.of[late], self._raw.over_for(self._late)[late]
            )
            alone = ~np.isin(paired(late_by, late_begins), paired(by, begins))
            rows = np.concatenate([rows, late])
            by, begins = np.concatenate([by, late_by[alone]]), np.concatenate([begins, late_begins[alone]])
            firsts = np.concatenate([firsts, late_firsts[alone] + more])
            ends = begins + grid.length
            there = np.isin(paired(by, begins), paired(*bounds[:2]))
            by, begins, ends, firsts = by[~there], begins[~there], ends[~there], firsts[~there]
            counts = np.maximum(
                1, inside(self._raw.members.by[rows[:more]], self._raw.members.of[rows[:more]], by, begins, ends)
            )
        is_open = self._appends & (ends > self._made.over())
        for first, count in zip(rows[firsts[is_open]].tolist(), counts[is_open].tolist(), strict=True):
            self._sheet.tally(self._raw.window, partition_of(int(self._raw.at[first]))).notes[
                "whose windows may not be over yet"
            ] += count
        missing = sorted(
            zip(rows[firsts[~is_open]].tolist(), begins[~is_open].tolist(), counts[~is_open].tolist(), strict=True)
        )
        for first, begin, count in missing:
            window = "" if grid is None else f" that begins at {instant_text(begin)}"
            others = "" if count == 1 else f", nor have {count - 1:,} more"
            why = (
                f"it has no group in {self._sheet.target.topic}{window}{others}, and is neither late nor a dead letter"
            )
            yield self._sheet.of_place("lost", int(self._raw.at[first]), why)

"""`Sessions`: windows that end a gap behind the last of their records, counted again."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from services.audit.aggregates.expected import Expected
from services.audit.aggregates.letters import FOREVER
from services.audit.aggregates.made import MadeGroups
from services.audit.aggregates.raw import RawRecords
from services.audit.aggregates.sheet import Sheet
from services.audit.aggregates.windows import Counts, Mask, instant_text
from services.audit.records.groups import MINUTE, NEVER
from services.audit.values.digest import Digests
from services.audit.values.finding import Finding
from services.audit.values.place import partition_of

_Rows = npt.NDArray[np.int64]


class Sessions:
    """Compares sessions with the raw records that belong there. A record alone is a session from its time on, a gap long; sessions of one `by`
    that touch are one.

    But one that was written when it was over takes no more records, and a record that came after, and is not late, begins another one, which
    may touch it. Which of these a record is in, nothing tells. So sessions that touch are compared together, as a chain; most have no
    neighbour.
    """

    def __init__(self, sheet: Sheet, raw: RawRecords, made: MadeGroups, *, counts: str, longest_gap: int) -> None:
        """`longest_gap` in minutes."""
        self._sheet, self._raw, self._made, self._counts = sheet, raw, made, counts
        before = raw.unread_before
        # Until then a record that was not read may hold any session open.
        self._held = before if before in (NEVER, FOREVER) else before + longest_gap * MINUTE

    def findings(self, expected: Expected) -> Iterator[Finding]:
        """Sessions that count more or fewer than belong there, or have other bounds, and raw records without a session."""
        raw, made = self._raw, self._made
        newest = made.newest()
        later = raw.later.belong & raw.later_good
        must, may = np.flatnonzero(expected.must), np.flatnonzero(expected.may)
        by = np.concatenate([raw.members.by[must], raw.members.by[may], raw.later.by[later]])
        of = np.concatenate([raw.members.of[must], raw.members.of[may], raw.later.of[later]])
        until = np.concatenate([raw.members.until[must], raw.members.until[may], raw.later.until[later]])
        is_must = np.arange(len(by)) < len(must)
        begins, ends, of_place, until_place = _places(
            (made.groups.by[newest], by), (made.groups.begins[newest], made.groups.ends[newest], of, until)
        )
        kept = np.ones(len(newest), np.bool_)
        if made.is_rebuilt:
            kept = ~self._superseded(newest, begins, ends)
            self._note_groups(newest[~kept], "sessions of before a rebuild, which another one replaces")
        newest, begins, ends = newest[kept], begins[kept], ends[kept]
        order = np.argsort(begins, kind="stable")
        newest, begins, ends = newest[order], begins[order], ends[order]
        chain, reach = _chains(begins, ends)
        firsts = np.flatnonzero(np.diff(chain, prepend=-1))
        lasts = np.append(firsts[1:], len(newest)) - 1 if len(newest) else firsts
        at = np.searchsorted(begins[firsts], of_place, side="right") - 1
        covered = np.zeros(len(by), np.bool_)
        found = at >= 0
        covered[found] = until_place[found] <= reach[lasts[at[found]]]
        yield from self._wrong(
            newest, begins, ends, chain, firsts, at[covered], is_must[covered], of_place[covered], until_place[covered]
        )
        alone = ~covered
        yield from self._without_session(
            must, by[alone], of[alone], until[alone], of_place[alone], until_place[alone], np.flatnonzero(alone)
        )

    def _superseded(self, newest: _Rows, begins: _Rows, ends: _Rows) -> Mask:
        """Sessions of a run before that touch one of the last run, which has cut them otherwise."""
        run = self._made.groups.run[newest]
        is_last = run == run[np.argmax(self._made.sent_ms[newest])] if len(newest) else np.zeros(0, np.bool_)
        order = np.argsort(begins[is_last], kind="stable")
        last_begins, reach = begins[is_last][order], np.maximum.accumulate(ends[is_last][order])
        # The one of the last run that begins before this one ends, and goes farthest.
        before = np.searchsorted(last_begins, ends, side="right") - 1
        touches = np.zeros(len(newest), np.bool_)
        found = before >= 0
        touches[found] = reach[before[found]] >= begins[found]
        return touches & ~is_last

    def _wrong(
        self,
        rows: _Rows,
        begins: _Rows,
        ends: _Rows,
        chain: _Rows,
        firsts: _Rows,
        at: _Rows,
        is_must: Mask,
        of: _Rows,
        until: _Rows,
    ) -> Iterator[Finding]:
        """`rows` of groups in the order of their begins, their bounds and chains; the chains' `firsts`; of the raw records in chains which one it is
        (`at`), and their own bounds.
        """
        groups, length = self._made.groups, len(firsts)
        least = np.bincount(at[is_must], minlength=length)
        most = np.bincount(at, minlength=length)
        said = np.zeros(length, np.int64)
        np.add.at(said, chain, groups.count[rows])
        whole = groups.begins[rows[firsts]] > self._raw.unread_before
        self._note(rows, chain, whole, least, most)
        wrong = (said < least) | (whole & (said > most))
        for index in np.flatnonzero(wrong).tolist():
            beside = int(np.sum(chain == index)) - 1
            what = f"{self._counts} is {said[index]}{f', with those of {beside} that touch it' if beside else ''}, and "
            if said[index] < least[index]:
                yield self._made.finding(
                    "lost", int(rows[firsts[index]]), f"{what}{least[index]} raw records belong there"
                )
            elif most[index] == 0:
                yield self._made.finding("phantom", int(rows[firsts[index]]), f"{what}no raw record belongs there")
            else:
                bound = "" if most[index] == least[index] else "at most "
                yield self._made.finding(
                    "doubled", int(rows[firsts[index]]), f"{what}{bound}{most[index]} raw records belong there"
                )
        looked_at = (whole & ~wrong)[chain]
        for row in rows[looked_at & ~np.isin(begins, of)].tolist():
            yield self._made.finding(
                "changed", row, f"it begins at {instant_text(int(groups.begins[row]))}, and no raw record of it does"
            )
        for row in rows[looked_at & ~np.isin(ends, until)].tolist():
            yield self._made.finding(
                "changed", row, f"it ends at {instant_text(int(groups.ends[row]))}, and no raw record of it does"
            )
        order = np.argsort(of, kind="stable")
        links, _ = _chains(of[order], until[order])
        broken = np.flatnonzero((np.diff(links) > 0) & (np.diff(at[order]) == 0))
        for index in np.unique(at[order][broken]).tolist():
            if whole[index] and not wrong[index]:
                yield self._made.finding(
                    "changed", int(rows[firsts[index]]), "its raw records are of several sessions, with a gap between"
                )
        # A later one may touch several that were written together and do not touch each other.
        order = np.lexsort((begins, groups.batch[rows], groups.run[rows]))
        together = rows[order]
        same_run = groups.run[together][1:] == groups.run[together][:-1]
        at_once = same_run & (groups.batch[together][1:] == groups.batch[together][:-1])
        for index in np.flatnonzero(at_once & (begins[order][1:] <= ends[order][:-1])).tolist():
            yield self._made.finding(
                "changed", int(together[index + 1]), "it touches one that was written with it: both are one session"
            )

    def _without_session(
        self,
        must: _Rows,
        by: Digests,
        of: _Rows,
        until: _Rows,
        of_place: _Rows,
        until_place: _Rows,
        index: _Rows,
    ) -> Iterator[Finding]:
        """Of the records in no chain their bounds, also as places, and which one each is among all, of which the first are those that `must` be in a
        session.
        """
        order = np.argsort(of_place, kind="stable")
        chain, _ = _chains(of_place[order], until_place[order])
        ends = np.full(chain.max(initial=-1) + 1, NEVER)
        np.maximum.at(ends, chain, until[order])
        ends = self._held_open(by[order], of[order], chain, ends)
        is_must = index[order] < len(must)
        rows, chain = must[index[order][is_must]], chain[is_must]
        forgotten = self._made.forgotten(self._raw.sent_ms[rows], self._raw.known.kept_since_ms)
        is_open = ends[chain] > self._made.over()
        for text, mask in (
            ("whose groups are deleted by now, not compared", forgotten),
            ("whose windows may not be over yet", is_open & ~forgotten),
        ):
            for partition in self._raw.window.spans:
                here = partition_of(self._raw.at[rows]) == partition
                self._sheet.tally(self._raw.window, partition).notes[text] += int(np.sum(mask & here))
        lost = ~forgotten & ~is_open
        rows, chain = rows[lost], chain[lost]
        _, firsts, counts = np.unique(chain, return_index=True, return_counts=True)
        missing = [int(self._raw.at[rows[chain == chain[first]]].min()) for first in firsts.tolist()]
        for place, count in sorted(zip(missing, counts.tolist(), strict=True)):
            others = "" if count == 1 else f", nor have {count - 1:,} more of its session"
            why = f"it has no group in {self._sheet.target.topic}{others}, and is neither late nor a dead letter"
            yield self._sheet.of_place("lost", place, why)

    def _held_open(self, by: Digests, of: _Rows, chain: _Rows, ends: _Rows) -> _Rows:
        """When chains of records that were read may end: what was not read may make one of all of a `by` that begin before it ends."""
        firsts = np.flatnonzero(np.diff(chain, prepend=-1))
        held = of[firsts] <= self._held
        _, number = np.unique(by[firsts], return_inverse=True)
        last = np.full(number.max(initial=-1) + 1, self._held)
        np.maximum.at(last, number[held], ends[held])
        return np.where(held, last[number], ends)

    def _note(self, rows: _Rows, chain: _Rows, whole: Mask, least: Counts, most: Counts) -> None:
        for text, mask in {
            "groups counted again": whole & (most == least),
            "groups counted again within bounds, for records came meanwhile or may have been set aside": whole
            & (most > least),
            "groups with records of before, looked at for losses only": ~whole & (least > 0),
            "groups with no records to be read, not looked at": ~whole & (least == 0),
        }.items():
            self._note_groups(rows[mask[chain]], text)
        for partition in self._sheet.target.spans:
            looked_at = (whole | (least > 0))[chain] & (partition_of(self._made.at[rows]) == partition)
            self._sheet.tally(self._sheet.target, partition).records += int(looked_at.sum())

    def _note_groups(self, rows: _Rows, text: str) -> None:
        for partition in self._sheet.target.spans:
            here = partition_of(self._made.at[rows]) == partition
            self._sheet.tally(self._sheet.target, partition).notes[text] += int(here.sum())


def _places(
    by: tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]], instants: tuple[_Rows, _Rows, _Rows, _Rows]
) -> list[_Rows]:
    """The instants, of which two are of the first `by` and two of the second, as places on one line: those of one `by` lie side by side, in the
    order of time.
    """
    number = np.unique(np.concatenate(by), return_inverse=True)[1]
    times, rank = np.unique(np.concatenate(instants), return_inverse=True)
    first, second = number[: len(by[0])], number[len(by[0]) :]
    ranks = np.split(rank, np.cumsum([len(each) for each in instants])[:-1])
    # One more than there are times: the last of one `by` does not touch the first of the next.
    step = len(times) + 1
    return [of * step + each for of, each in zip((first, first, second, second), ranks, strict=True)]


def _chains(begins: _Rows, ends: _Rows) -> tuple[_Rows, _Rows]:
    """Of what is in the order of its begins: the number of the chain of those that touch, and how far they reach up to there."""
    reach = np.maximum.accumulate(ends) if len(ends) else ends
    apart = np.ones(len(begins), np.bool_)
    apart[1:] = begins[1:] > reach[:-1]
    return np.cumsum(apart) - 1, reach

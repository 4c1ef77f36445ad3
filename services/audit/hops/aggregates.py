"""The hop from a raw topic to an aggregate: each raw record is in exactly one of {its group, the late ones, the dead letters}."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Self

import numpy as np
import numpy.typing as npt

from services.audit.hops.derived import CLOCKS_DIFFER_MS, Mask
from services.audit.records.groups import NEVER, NO_BATCH, Groups, Instants, Members
from services.audit.records.records import Records
from services.audit.records.window import Where, Window
from services.audit.values.digest import Digests, mix
from services.audit.values.finding import Finding, Kind, Tally
from services.audit.values.place import Codes, concatenated, coordinate, named_in_vain, partition_of

_MOST_AHEAD_MINUTES = 60
"""An event further ahead of its record is a dead letter: by its time all others would be late. Or half of the lateness, if that is less."""

_MINUTE = 60_000_000
_WITHIN = 999_999
"""A letter tells whole seconds: in microseconds, what it may leave out."""
_LATEST = 253_402_300_800_000_000
"""The end of the year 9999, in microseconds since 1970."""
FOREVER = int(np.iinfo(np.int64).max)
"""An instant after all others."""
_NEVER_MS = 1 << 62
_NO_CODES: Codes = np.zeros(0, np.int64)

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Letters:
    """What a topic says of raw records that were not counted, one entry of each array for each letter. `source` is the raw record's place,
    `payload` the digest of its bytes. `over` is when the last of its windows ends that are over by the letter's word: it counts in later ones,
    where windows overlap. FOREVER: in none.

    `has_deleted`: some are gone. Those of records that were sent since `kept_since_ms` are not, by the contract.
    """

    topic: str
    at: Codes
    source: Codes
    payload: Digests
    over: Instants
    has_deleted: bool = False
    kept_since_ms: int = 0


@dataclass(frozen=True, slots=True)
class Known:
    """What else there is to know. `latest`: the raw topic's ends after everything else was read. `purged`, `redriven`: raw records whose dead
    letters were given up, or that were sent back.

    `newest_before`: no raw record that an earlier audit has read has a later event time, in microseconds since 1970; None: nobody knows.
    Groups that were written since `kept_since_ms`, and raw records that were sent since `raw_kept_since_ms`, are there still, by the contracts.
    """

    latest: Mapping[int, int]
    late_after_minutes: int
    purged: Codes = field(default_factory=lambda: _NO_CODES)
    redriven: Codes = field(default_factory=lambda: _NO_CODES)
    newest_before: int | None = None
    kept_since_ms: int = 0
    raw_kept_since_ms: int = 0


class Aggregation:
    """Compares a raw topic's window with the groups that were made of it. Pure: arrays in, findings and tallies out.

    Groups may be ahead of the cut, so some raw records only *may* be in their group: those that came after the cut are such, and a few
    others that nobody can tell of. A group's count is right between the number of those that must be in it and that with the others.
    """

    def __init__(
        self,
        raw: Window,
        records: Sequence[Records],
        later: Sequence[Records],
        target: Window,
        made: Sequence[Records],
        dead: Letters,
        late: Letters,
        known: Known,
        *,
        counts: str = "count",
        appends: bool = False,
    ) -> None:
        """`records` in the order of partitions, `later` those from the cut to an end that was asked for when `made`, the aggregate's records from
        its first one on, had an end. `counts` is the name of the field; `appends`: a group is written when its window is over.
        """
        topic = target.topic
        self.hop = f"{raw.topic} → {topic}"
        self._raw, self._target, self._dead, self._late, self._known = raw, target, dead, late, known
        self._counts, self._appends = counts, appends
        self._at = concatenated([part.at for part in records], np.int64)
        self._payload = concatenated([part.payload for part in records], np.uint64)
        self._sent_ms = concatenated([part.sent_ms for part in records], np.int64)
        self._was_redriven = concatenated([part.redriven for part in records], np.bool_)
        self._members = Members.joined([part.members[topic] for part in records])
        self._later = Members.joined([part.members[topic] for part in later])
        self._ahead = max(1, min(_MOST_AHEAD_MINUTES, known.late_after_minutes // 2)) * _MINUTE
        # Those that can be read, and are not from the future.
        self._good = self._of_good(self._members, records)
        self._later_good = self._of_good(self._later, later)
        self._made_at = concatenated([part.at for part in made], np.int64)
        self._made_ms = concatenated([part.sent_ms for part in made], np.int64)
        self._made_readable = concatenated([part.readable for part in made], np.bool_)
        self._key = concatenated([part.key for part in made], np.uint64)
        self._groups = Groups.joined([part.groups for part in made if part.groups is not None])
        self._is_rebuilt = len(np.unique(self._groups.run[self._groups.batch != NO_BATCH])) > 1
        self.tallies = {
            f"{window.topic}/{partition}": Tally(self.hop, f"{window.topic}/{partition}")
            for window in (raw, target)
            for partition in window.spans
        }
        self._unread_before = self._unread()

    @property
    def newest(self) -> int | None:
        """For the next audit: no raw record up to this cut has a later event time; None: nobody knows."""
        found = max(self._unread_before, int(self._members.of[self._good].max(initial=NEVER)))
        return None if found == FOREVER else found

    def findings(self) -> Iterator[Finding]:
        """What is wrong; the tallies are full afterwards."""
        for partition in self._raw.spans:
            here = partition_of(self._at) == partition
            tally = self._tally(self._raw, partition)
            tally.records += int(here.sum())
            tally.notes.update(self._raw.notes(partition))
        yield from self._wrong_ids()
        yield from self._wrong_groups()
        for letters in (self._dead, self._late):
            yield from self._wrong_letters(letters)
        yield from self._wrongly_dead()
        yield from self._wrongly_late()
        must, may, partly = self._expected()
        yield from self._unaccounted()
        yield from self._wrong_counts(must, may, partly)
        yield from self._without_group(must)

    # What raw records are to be in groups

    def _unread(self) -> int:
        """No raw record that this audit has not read, and whose group it has, is of a later time: a group whose window begins after that is
        wholly of records that were read. In microseconds; NEVER if all were read.
        """
        bound = NEVER
        for partition, span in self._raw.spans.items():
            if span.audited > 0:
                bound = max(bound, FOREVER if self._known.newest_before is None else self._known.newest_before)
            if span.low > span.audited:
                bound = max(bound, self._deleted_before(partition))
        return bound

    def _deleted_before(self, partition: int) -> int:
        """The event time that no deleted record of this raw partition goes beyond, if it was counted. What retention deletes was sent before
        what it leaves, or before all that the contract promises to keep.
        """
        # What was redriven is old, and lies among the new.
        left = self._sent_ms[(partition_of(self._at) == partition) & ~self._was_redriven]
        if not len(left):
            return FOREVER
        return (max(int(left[0]), self._known.raw_kept_since_ms) + CLOCKS_DIFFER_MS) * 1000 + self._ahead

    def _expected(self) -> tuple[Mask, Mask, Mask]:
        """Of the raw records those that must be in their groups, those that may be, and those that must be in some: the late ones."""
        is_member = self._members.belong & self._good
        dead, late = self._named(self._dead), self._named(self._late)
        purged = np.isin(self._at, self._known.purged) & ~dead
        # Of a letter that expired nothing is left, but that letters did.
        expired = self._expired(self._late) & ~late
        may = purged | expired
        if self._is_rebuilt:
            # A run that computed everything again had batches of its own: what came late to the one before may be in time.
            may |= late & ~dead
        notes = {
            "dead letters": dead,
            "purged dead letters": purged,
            "late": late,
            "that may have been late, for late records are deleted by now": expired & is_member & ~dead & ~purged,
            "that were late before a rebuild, which may have counted them": may & is_member & late,
            "in no group, by the condition": self._good & ~is_member & ~dead & ~late,
        }
        for partition in self._raw.spans:
            here = partition_of(self._at) == partition
            for text, mask in notes.items():
                self._tally(self._raw, partition).notes[text] += int(np.sum(mask & here))
        return is_member & ~dead & ~late & ~may, is_member & may, is_member & late & ~dead & ~may

    def _of_good(self, members: Members, records: Sequence[Records]) -> Mask:
        sent = concatenated([part.sent_ms for part in records], np.int64) * 1000
        found: Mask = (members.of != NEVER) & (members.of <= sent + self._ahead)
        return found

    def _named(self, letters: Letters) -> Mask:
        return np.isin(self._at, letters.source)

    def _expired(self, letters: Letters) -> Mask:
        """Raw records whose letters, which have their time, may be deleted by now."""
        if not letters.has_deleted:
            return np.zeros(len(self._at), np.bool_)
        old: Mask = self._sent_ms <= letters.kept_since_ms + CLOCKS_DIFFER_MS
        return old

    # What groups say

    def _wrong_ids(self) -> Iterator[Finding]:
        groups, at = self._groups, self._made_at
        told = groups.batch != NO_BATCH
        for row in np.flatnonzero(~told).tolist():
            yield self._of_group("changed", row, "its id names no run and batch")
        for row in np.flatnonzero(told & ~groups.has_own_id).tolist():
            yield self._of_group("changed", row, "its id is of another key")
        for row in np.flatnonzero(~groups.has_own_key).tolist():
            yield self._of_group("changed", row, "its key is not what its fields say")
        rows = np.flatnonzero(told)
        rows = rows[np.lexsort((at[rows], groups.batch[rows], groups.run[rows], self._key[rows]))]
        same = self._alike(rows, self._key, groups.run)
        for index in np.flatnonzero(same & (groups.batch[rows][1:] == groups.batch[rows][:-1])).tolist():
            before = coordinate(self._target.topic, int(at[rows[index]]))
            yield self._of_group("doubled", int(rows[index + 1]), f"it has the id of {before}, too")
        rows = rows[np.lexsort((at[rows], self._key[rows]))]
        same = self._alike(rows, self._key, partition_of(at))
        same_run = same & self._alike(rows, groups.run)
        for index in np.flatnonzero(same_run & (groups.batch[rows][1:] < groups.batch[rows][:-1])).tolist():
            what = (
                f"batch {groups.batch[rows[index + 1]]} lies behind batch {groups.batch[rows[index]]} of the same run"
            )
            yield self._of_group("out of order", int(rows[index + 1]), what)
        # Where a run begins, or comes back.
        begins = rows[np.insert(~same_run, 0, True)[: len(rows)]]
        begins = begins[np.lexsort((at[begins], groups.run[begins], partition_of(at[begins]), self._key[begins]))]
        again = self._alike(begins, self._key, partition_of(at), groups.run)
        for row in begins[1:][again].tolist():
            yield self._of_group("out of order", row, "its run lies behind a later one")

    def _wrong_groups(self) -> Iterator[Finding]:
        groups = self._groups
        for row in np.flatnonzero(~self._made_readable).tolist():
            yield self._of_group("phantom", row, "it can't be decoded")
        for row in np.flatnonzero(self._made_readable & ~self._is_group()).tolist():
            yield self._of_group("phantom", row, "its window has no begin, or no end behind it")
        for row in np.flatnonzero(self._made_readable & (groups.is_final != self._appends)).tolist():
            yield self._of_group("changed", row, f"it says that it is {'' if groups.is_final[row] else 'not '}final")
        newest = self._newest()
        rows = newest[
            np.lexsort((self._made_at[newest], groups.ends[newest], groups.begins[newest], groups.by[newest]))
        ]
        for index in np.flatnonzero(self._alike(rows, groups.by, groups.begins, groups.ends)).tolist():
            other = coordinate(self._target.topic, int(self._made_at[rows[index]]))
            yield self._of_group("doubled", int(rows[index + 1]), f"{other} is the same group by another key")
        rows = np.lexsort((partition_of(self._made_at), self._key))
        same = self._alike(rows, self._key)
        moved = np.unique(self._key[rows][1:][same & ~self._alike(rows, partition_of(self._made_at))])
        for row in newest[np.isin(self._key[newest], moved)].tolist():
            yield self._of_group("out of order", row, "its key is in several partitions, and nothing tells the newest")

    def _is_group(self) -> Mask:
        found: Mask = (self._groups.begins != NEVER) & (self._groups.begins < self._groups.ends)
        return found

    def _newest(self) -> npt.NDArray[np.int64]:
        """The newest record of each key that is a group; of a key in several partitions by its time."""
        rows = np.flatnonzero(self._made_readable & self._is_group())
        rows = rows[np.lexsort((self._made_at[rows], self._key[rows]))]
        rows = rows[np.append(~self._alike(rows, self._key, partition_of(self._made_at)), True)[: len(rows)]]
        rows = rows[np.lexsort((self._made_ms[rows], self._key[rows]))]
        newest: npt.NDArray[np.int64] = rows[np.append(~self._alike(rows, self._key), True)[: len(rows)]]
        return newest

    def _alike(self, rows: npt.NDArray[np.int64], *of: npt.NDArray[np.generic]) -> Mask:
        """For each of these rows but the first, whether it has the values of the row before."""
        same = np.ones(max(0, len(rows) - 1), np.bool_)
        for values in of:
            chosen = values[rows]
            same &= chosen[1:] == chosen[:-1]
        return same

    # What was not counted

    def _wrong_letters(self, letters: Letters) -> Iterator[Finding]:
        """Letters of no raw record, more than one of a raw record, and with other bytes than its."""
        where = self._where(letters)
        for index in np.flatnonzero(where == Where.NOWHERE).tolist():
            source, own = int(letters.source[index]), coordinate(letters.topic, int(letters.at[index]))
            named, why = named_in_vain(self._raw.topic, source, own)
            yield self._of_raw("phantom", source, named, why)
        sources, counts = np.unique(letters.source[where != Where.NOWHERE], return_counts=True)
        for source, count in zip(sources[counts > 1].tolist(), counts[counts > 1].tolist(), strict=True):
            if not self._is_rebuilt:
                yield self._of_place("doubled", source, f"{count} times in {letters.topic}")
            elif partition_of(source) in self._raw.spans:
                self._tally(self._raw, partition_of(source)).notes["set aside again, by a rebuild"] += count - 1
        inside = np.flatnonzero(where == Where.INSIDE)
        differs = self._payload[np.searchsorted(self._at, letters.source[inside])] != letters.payload[inside]
        for index in inside[differs].tolist():
            own = coordinate(letters.topic, int(letters.at[index]))
            yield self._of_place("changed", int(letters.source[index]), f"key or value differs in {own}")
        for partition in self._raw.spans:
            gone = (where == Where.GONE) & (partition_of(letters.source) == partition)
            note = "set aside, of records that are deleted by now, not compared"
            self._tally(self._raw, partition).notes[note] += int(gone.sum())

    def _where(self, letters: Letters) -> npt.NDArray[np.int8]:
        where = self._raw.where(letters.source, self._known.latest)
        where[(where == Where.INSIDE) & ~np.isin(letters.source, self._at)] = Where.NOWHERE
        return where

    def _wrongly_dead(self) -> Iterator[Finding]:
        """Dead letters of good records."""
        dead = np.unique(self._dead.source[self._where(self._dead) == Where.INSIDE])
        place = np.searchsorted(self._at, dead)
        for source in dead[self._good[place] & ~np.isin(dead, self._known.redriven)].tolist():
            yield self._of_place("set aside", source, f"{self._dead.topic} has it, and it is good: redrive it")

    def _wrongly_late(self) -> Iterator[Finding]:
        """Late records that are bad, belong to no group, or have a window that can't be over."""
        late = np.unique(self._late.source[self._where(self._late) == Where.INSIDE])
        place = np.searchsorted(self._at, late)
        is_member = self._members.belong[place]
        dead = np.isin(late, self._dead.source)
        topic = self._late.topic
        for source in late[dead].tolist():
            yield self._of_place("doubled", source, f"in {topic} and in {self._dead.topic}")
        for source in late[~self._good[place] & ~dead].tolist():
            yield self._of_place("phantom", source, f"{topic} has it, and it {self._fault(source)}")
        for source in late[self._good[place] & ~is_member].tolist():
            yield self._of_place("phantom", source, f"{topic} has it, and it belongs to no group")
        newest = max(
            self._unread_before,
            int(self._members.of[self._good].max(initial=NEVER)),
            int(self._later.of[self._later_good].max(initial=NEVER)),
        )
        if newest == FOREVER:
            return
        # Its window ends behind it, and had ended before the newest event less the lateness.
        in_time = is_member & self._good[place]
        over = self._over_for()[place]
        ends = np.maximum(self._members.of[place] + 1, np.where(over == FOREVER, NEVER, over))
        in_time &= ends > newest - self._known.late_after_minutes * _MINUTE
        for source in late[in_time].tolist():
            yield self._of_place("set aside", source, f"{topic} has it, and no event is so new that its window is over")

    def _unaccounted(self) -> Iterator[Finding]:
        left = ~self._good & ~self._named(self._dead) & ~self._named(self._late)
        left &= ~np.isin(self._at, self._known.purged)
        expired = left & self._expired(self._dead)
        for partition in self._raw.spans:
            note = "that are bad, and whose dead letters are deleted by now"
            count = int(np.sum(expired & (partition_of(self._at) == partition)))
            self._tally(self._raw, partition).notes[note] += count
        for source in self._at[left & ~expired].tolist():
            yield self._of_place("lost", source, f"it {self._fault(source)}, and is not in {self._dead.topic}")

    def _over_for(self) -> Instants:
        """For each raw record when the last of its windows ends that a late letter says is over."""
        over = np.full(len(self._at), NEVER)
        known = np.flatnonzero(np.isin(self._late.source, self._at))
        np.maximum.at(over, np.searchsorted(self._at, self._late.source[known]), self._late.over[known])
        return over

    def _fault(self, source: int) -> str:
        can_be_read = self._members.of[np.searchsorted(self._at, source)] != NEVER
        return "is from the future, more than an aggregate takes" if can_be_read else "can't be read"

    # Counting again

    def _wrong_counts(self, must: Mask, may: Mask, partly: Mask) -> Iterator[Finding]:
        newest, groups = self._newest(), self._groups
        of_groups = groups.by[newest], groups.begins[newest], groups.ends[newest]
        counted = must | partly
        of = self._members.of[counted]
        # All windows that one lies in end by its time and their length.
        longest = of + int((groups.ends[newest] - groups.begins[newest]).min(initial=FOREVER - _LATEST))
        told = np.minimum(np.where(partly, self._over_for(), NEVER)[counted], longest - _WITHIN) + _WITHIN
        upto = np.maximum(of, told)
        least = inside(self._members.by[counted], of, *of_groups, upto)
        later = self._later.belong & self._later_good
        by = np.concatenate([self._members.by[may], self._later.by[later]])
        of = np.concatenate([self._members.of[may], self._later.of[later]])
        most = least + inside(by, of, *of_groups)
        said = groups.count[newest]
        whole = groups.begins[newest] > self._unread_before
        notes = {
            "groups counted again": whole & (most == least),
            "groups counted again within bounds, for records came meanwhile or may have been set aside": whole
            & (most > least),
            "groups with records of before, looked at for losses only": ~whole & (least > 0),
            "groups with no records to be read, not looked at": ~whole & (least == 0),
        }
        for partition in self._target.spans:
            tally, here = self._tally(self._target, partition), partition_of(self._made_at[newest]) == partition
            tally.records += int(np.sum(here & (whole | (least > 0))))
            for text, mask in notes.items():
                tally.notes[text] += int(np.sum(mask & here))
        for index in np.flatnonzero(said < least).tolist():
            what = f"{self._counts} is {said[index]}, and {least[index]} raw records belong there"
            yield self._of_group("lost", int(newest[index]), what)
        for index in np.flatnonzero(whole & (most == 0) & (said >= least)).tolist():
            yield self._of_group(
                "phantom", int(newest[index]), f"{self._counts} is {said[index]}, and no raw record belongs there"
            )
        for index in np.flatnonzero(whole & (most > 0) & (said > most)).tolist():
            at_most = "" if most[index] == least[index] else "at most "
            what = f"{self._counts} is {said[index]}, and {at_most}{most[index]} raw records belong there"
            yield self._of_group("doubled", int(newest[index]), what)

    def _without_group(self, must: Mask) -> Iterator[Finding]:
        """Groups that are not there: each window that raw records belong to, as far as groups that are there tell windows."""
        newest, groups = self._newest(), self._groups
        bounds = groups.by[newest], groups.begins[newest], groups.ends[newest]
        rows = np.flatnonzero(must)
        alone = ~covered(self._members.by[rows], self._members.of[rows], *bounds)
        forgotten = self._forgotten(rows)
        for partition in self._raw.spans:
            here, tally = partition_of(self._at[rows]) == partition, self._tally(self._raw, partition)
            tally.notes["whose groups are deleted by now, not compared"] += int(np.sum(alone & forgotten & here))
        # Another run may have had other windows.
        now = groups.run[newest] == groups.run[newest[np.argmax(self._made_ms[newest])]] if len(newest) else newest
        grid = Grid.of(bounds[1][now], bounds[2][now])
        if grid is None:
            # Nothing tells windows: what is in none has no group.
            length = int((bounds[2] - bounds[1]).max(initial=0))
            rows = rows[alone & ~forgotten]
            by, begins, firsts = self._members.by[rows], np.zeros(len(rows), np.int64), np.arange(len(rows))
            by, firsts = np.unique(by, return_index=True)
            begins, ends = np.full(len(by), NEVER), self._members.of[rows[firsts]] + length
            counts = inside(self._members.by[rows], self._members.of[rows], by, begins, np.full(len(by), FOREVER))
        else:
            rows = rows[~forgotten]
            by, begins, firsts = grid.windows(self._members.by[rows], self._members.of[rows])
            ends = begins + grid.length
            there = np.isin(_paired(by, begins), _paired(*bounds[:2]))
            by, begins, ends, firsts = by[~there], begins[~there], ends[~there], firsts[~there]
            counts = inside(self._members.by[rows], self._members.of[rows], by, begins, ends)
        is_open = self._appends & (ends > self._over())
        for first, count in zip(rows[firsts[is_open]].tolist(), counts[is_open].tolist(), strict=True):
            self._tally(self._raw, partition_of(int(self._at[first]))).notes["whose windows may not be over yet"] += (
                count
            )
        missing = sorted(
            zip(rows[firsts[~is_open]].tolist(), begins[~is_open].tolist(), counts[~is_open].tolist(), strict=True)
        )
        for first, begin, count in missing:
            window = "" if grid is None else f" that begins at {_text(begin)}"
            others = "" if count == 1 else f", nor have {count - 1:,} more"
            why = f"it has no group in {self._target.topic}{window}{others}, and is neither late nor a dead letter"
            yield self._of_place("lost", int(self._at[first]), why)

    def _over(self) -> int:
        """Of groups that are written when their windows are over, all that end up to this instant are there. Those of a batch are written one
        partition after the other, and before any of the next batch.
        """
        groups = self._groups
        rows = np.flatnonzero(self._made_readable & self._is_group() & (groups.batch != NO_BATCH))
        _, of = np.unique(groups.run[rows], return_inverse=True)
        last = np.full(of.max(initial=-1) + 1, NO_BATCH)
        np.maximum.at(last, of, groups.batch[rows])
        return int(groups.ends[rows][groups.batch[rows] < last[of]].max(initial=NEVER // 2))

    def _forgotten(self, rows: npt.NDArray[np.int64]) -> Mask:
        """Raw records that outlive their group: older than what the contract promises to keep, and a partition has deleted some and has none
        left that is older.
        """
        sent_ms, found = self._sent_ms[rows], np.zeros(len(rows), np.bool_)
        for partition, span in self._target.spans.items():
            if span.low > 0:
                oldest = self._made_ms[partition_of(self._made_at) == partition].min(initial=_NEVER_MS)
                found |= sent_ms <= oldest + CLOCKS_DIFFER_MS
        expired: Mask = sent_ms <= self._known.kept_since_ms + CLOCKS_DIFFER_MS
        return found & expired

    # What is said of it

    def _tally(self, window: Window, partition: int) -> Tally:
        return self.tallies[f"{window.topic}/{partition}"]

    def _of_group(self, kind: Kind, row: int, detail: str) -> Finding:
        at = int(self._made_at[row])
        named = self._groups.keys.get(int(self._key[row]), "")
        place = f"{self._target.topic}/{partition_of(at)}"
        return Finding(kind, self.hop, place, coordinate(self._target.topic, at), f"{named}: {detail}")

    def _of_place(self, kind: Kind, source: int, detail: str) -> Finding:
        return self._of_raw(kind, source, coordinate(self._raw.topic, source), detail)

    def _of_raw(self, kind: Kind, source: int, named: str, detail: str) -> Finding:
        partition = partition_of(source)
        place = f"{self._raw.topic}/{partition}" if partition in self._raw.spans else self._raw.topic
        return Finding(kind, self.hop, place, named, detail)


@dataclass(frozen=True, slots=True)
class Grid:
    """Windows of one `length`, of which one begins at `first` and another every `step`."""

    first: int
    step: int
    length: int

    @classmethod
    def of(cls, begins: Instants, ends: Instants) -> Self | None:
        """Those that these are of; None if nothing tells them: there are none, or they are of several lengths.

        The step may be a multiple of the true one, where few windows are there. Then fewer windows are known.
        """
        lengths = np.unique(ends - begins)
        if len(lengths) != 1:
            return None
        length, step = int(lengths[0]), int(np.gcd.reduce(begins - begins[0]))
        # Where none overlap they lie side by side.
        return cls(int(begins[0]), step if 0 < step < length else math.gcd(step, length), length)

    def windows(self, by: Digests, of: Instants) -> tuple[Digests, Instants, npt.NDArray[np.int64]]:
        """Every window that one of these lies in, once for each `by`: `by`, begin, and the index of one of them."""
        order = np.argsort(of, kind="stable")
        _, firsts = np.unique(_paired(by[order], (of[order] - self.first) // self.step), return_index=True)
        rows = order[
            firsts
        ]  # the earliest of each: it lies in all windows that others of its cell lie in, and maybe earlier ones
        found: list[tuple[Digests, Instants, npt.NDArray[np.int64]]] = []
        begins = (of[rows] - self.first) // self.step * self.step + self.first
        while (lies := of[rows] < begins + self.length).any():
            rows, begins = rows[lies], begins[lies]
            found.append((by[rows], begins, rows))
            begins = begins - self.step
        bys, starts, indices = (
            concatenated([part[n] for part in found], kind) for n, kind in enumerate((np.uint64, np.int64, np.int64))
        )
        _, unique = np.unique(_paired(bys, starts), return_index=True)
        return bys[unique], starts[unique], indices[unique]


def _paired(by: Digests, number: npt.NDArray[np.int64]) -> Digests:
    """One digest of both."""
    return mix(by ^ mix(number.astype(np.uint64)))


def _text(instant: int) -> str:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=instant)).isoformat().replace("+00:00", "Z")


def inside(
    by: Digests, of: Instants, group_by: Digests, begins: Instants, ends: Instants, upto: Instants | None = None
) -> Counts:
    """For each group how many have its `by`, and lie in its window: at or after its begin, and `upto`, by default `of`, before its end.

    All at once: sorted together, those before each bound are counted. No window holds the whole of another, so what begins before a
    window does not reach its end.
    """
    before_begin = _before(by, of, group_by, begins)
    return _before(by, of if upto is None else upto, group_by, ends) - before_begin


def _before(by: Digests, of: Instants, group_by: Digests, bound: Instants) -> Counts:
    """How many have the `by` of each bound, or a lesser one, and of its own lie before it. Differences of two are of one `by`."""
    groups = len(group_by)
    order = np.lexsort(
        (np.arange(groups + len(by)) >= groups, np.concatenate([bound, of]), np.concatenate([group_by, by]))
    )
    found = np.zeros(groups + len(by), np.int64)
    found[order] = np.cumsum(order >= groups)
    return found[:groups]


def covered(by: Digests, of: Instants, group_by: Digests, begins: Instants, ends: Instants) -> Mask:
    """For each whether it lies in the window of a group with its `by`."""
    groups = len(group_by)
    step = np.concatenate([np.ones(groups, np.int64), np.full(groups, -1), np.zeros(len(by), np.int64)])
    times = np.concatenate([begins, ends, of])
    order = np.lexsort((np.arange(len(times)) >= 2 * groups, times, np.concatenate([group_by, group_by, by])))
    open_windows = np.zeros(len(times), np.int64)
    open_windows[order] = np.cumsum(step[order])
    found: Mask = open_windows[2 * groups :] > 0
    return found

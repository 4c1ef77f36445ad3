"""`MadeGroups`: the records of an aggregate, and what is wrong with them by themselves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from services.audit.aggregates.sheet import Sheet
from services.audit.aggregates.windows import Mask
from services.audit.hops.derived import CLOCKS_DIFFER_MS
from services.audit.records.groups import NEVER, NO_BATCH, Groups
from services.audit.records.records import Records
from services.audit.values.finding import Finding, Kind
from services.audit.values.place import concatenated, coordinate, partition_of

_NEVER_MS = 1 << 62
_SENT_AGAIN = "and a redrive has sent it again: the next record of its group puts it right, or a rebuild"


class MadeGroups:
    """One entry of each array for each record; `is_rebuilt`: several runs have written them. `appends`: a group is written when its window is
    over. `counts`: of the raw topic that is compared, `total`: of both where there are two. What was `redriven` is a record once more, and old.
    """

    def __init__(self, sheet: Sheet, records: Sequence[Records], *, appends: bool, is_second: bool = False) -> None:
        self._sheet, self._appends = sheet, appends
        self.at = concatenated([part.at for part in records], np.int64)
        self.sent_ms = concatenated([part.sent_ms for part in records], np.int64)
        self.readable = concatenated([part.readable for part in records], np.bool_)
        self.redriven = concatenated([part.redriven for part in records], np.bool_)
        self.key = concatenated([part.key for part in records], np.uint64)
        self.groups = Groups.joined([part.groups for part in records if part.groups is not None])
        first, second = self.groups.count, self.groups.united
        self.counts = second if is_second else first
        self.total = first + second if len(second) else first
        self.is_rebuilt = len(np.unique(self.groups.run[self.groups.batch != NO_BATCH])) > 1

    def finding(self, kind: Kind, row: int, detail: str) -> Finding:
        """About the group of a record."""
        if self.redriven[row]:
            detail = f"{detail}, {_SENT_AGAIN}"
        return self._sheet.of_group(kind, int(self.at[row]), self.groups.keys.get(int(self.key[row]), ""), detail)

    def wrong_ids(self) -> Iterator[Finding]:
        """Ids that are not of their key, came twice, or lie in another order than their batches."""
        groups, at = self.groups, self.at
        told = groups.batch != NO_BATCH
        for row in np.flatnonzero(~told).tolist():
            yield self.finding("changed", row, "its id names no run and batch")
        for row in np.flatnonzero(told & ~groups.has_own_id).tolist():
            yield self.finding("changed", row, "its id is of another key")
        for row in np.flatnonzero(~groups.has_own_key).tolist():
            yield self.finding("changed", row, "its key is not what its fields say")
        rows = np.flatnonzero(told & ~self.redriven)
        rows = rows[np.lexsort((at[rows], groups.batch[rows], groups.run[rows], self.key[rows]))]
        same = self._alike(rows, self.key, groups.run)
        for index in np.flatnonzero(same & (groups.batch[rows][1:] == groups.batch[rows][:-1])).tolist():
            before = coordinate(self._sheet.target.topic, int(at[rows[index]]))
            yield self.finding("doubled", int(rows[index + 1]), f"it has the id of {before}, too")
        rows = rows[np.lexsort((at[rows], self.key[rows]))]
        same = self._alike(rows, self.key, partition_of(at))
        same_run = same & self._alike(rows, groups.run)
        for index in np.flatnonzero(same_run & (groups.batch[rows][1:] < groups.batch[rows][:-1])).tolist():
            what = (
                f"batch {groups.batch[rows[index + 1]]} lies behind batch {groups.batch[rows[index]]} of the same run"
            )
            yield self.finding("out of order", int(rows[index + 1]), what)
        # Where a run begins, or comes back.
        begins = rows[np.insert(~same_run, 0, True)[: len(rows)]]
        begins = begins[np.lexsort((at[begins], groups.run[begins], partition_of(at[begins]), self.key[begins]))]
        again = self._alike(begins, self.key, partition_of(at), groups.run)
        for row in begins[1:][again].tolist():
            yield self.finding("out of order", row, "its run lies behind a later one")
        yield from self._sent_again()

    def wrong_groups(self) -> Iterator[Finding]:
        """Records that are no group, or the same one as another."""
        groups = self.groups
        for row in np.flatnonzero(~self.readable).tolist():
            yield self.finding("phantom", row, "it can't be decoded")
        for row in np.flatnonzero(self.readable & ~self._is_group()).tolist():
            yield self.finding("phantom", row, "its window has no begin, or no end behind it")
        for row in np.flatnonzero(self.readable & (groups.is_final != self._appends)).tolist():
            yield self.finding("changed", row, f"it says that it is {'' if groups.is_final[row] else 'not '}final")
        newest = self.newest()
        rows = newest[np.lexsort((self.at[newest], groups.ends[newest], groups.begins[newest], groups.by[newest]))]
        for index in np.flatnonzero(self._alike(rows, groups.by, groups.begins, groups.ends)).tolist():
            other = coordinate(self._sheet.target.topic, int(self.at[rows[index]]))
            yield self.finding("doubled", int(rows[index + 1]), f"{other} is the same group by another key")
        rows = np.lexsort((partition_of(self.at), self.key))
        same = self._alike(rows, self.key)
        moved = np.unique(self.key[rows][1:][same & ~self._alike(rows, partition_of(self.at))])
        for row in newest[np.isin(self.key[newest], moved)].tolist():
            yield self.finding("out of order", row, "its key is in several partitions, and nothing tells the newest")

    def _is_group(self) -> Mask:
        found: Mask = (self.groups.begins != NEVER) & (self.groups.begins < self.groups.ends)
        return found

    def _sent_again(self) -> Iterator[Finding]:
        """Records that a redrive put behind those that are newer: readers take them for the newest."""
        for partition in self._sheet.target.spans:
            count = int(np.sum(self.redriven & (partition_of(self.at) == partition)))
            self._sheet.tally(self._sheet.target, partition).notes["sent again by a redrive"] += count
        newest, last = self._last(~self.redriven), self._last(np.zeros(len(self.at), np.bool_))
        is_older = self.groups.batch[last] != self.groups.batch[newest]
        is_older |= self.groups.run[last] != self.groups.run[newest]
        for row, newer in zip(last[is_older].tolist(), newest[is_older].tolist(), strict=True):
            other = coordinate(self._sheet.target.topic, int(self.at[newer]))
            yield self.finding("out of order", row, f"it lies behind {other}, which is newer")

    def _last(self, rank: Mask) -> npt.NDArray[np.int64]:
        """Of each key in each partition the last record that is a group, in the order of keys and partitions; such with a `rank` before others."""
        rows = np.flatnonzero(self.readable & self._is_group())
        rows = rows[np.lexsort((self.at[rows], rank[rows], partition_of(self.at)[rows], self.key[rows]))]
        found: npt.NDArray[np.int64] = rows[
            np.append(~self._alike(rows, self.key, partition_of(self.at)), True)[: len(rows)]
        ]
        return found

    def newest(self) -> npt.NDArray[np.int64]:
        """The newest record of each key that is a group; of a key in several partitions by its time. One that was redriven only if it is the only one."""
        rows = self._last(~self.redriven)
        rows = rows[np.lexsort((self.sent_ms[rows], self.key[rows]))]
        newest: npt.NDArray[np.int64] = rows[np.append(~self._alike(rows, self.key), True)[: len(rows)]]
        return newest

    def _alike(self, rows: npt.NDArray[np.int64], *of: npt.NDArray[np.generic]) -> Mask:
        """For each of these rows but the first, whether it has the values of the row before."""
        same = np.ones(max(0, len(rows) - 1), np.bool_)
        for values in of:
            chosen = values[rows]
            same &= chosen[1:] == chosen[:-1]
        return same

    def over(self) -> int:
        """Of groups that are written when their windows are over, all that end up to this instant are there. Those of a batch are written one
        partition after the other, and before any of the next batch.
        """
        groups = self.groups
        rows = np.flatnonzero(self.readable & self._is_group() & (groups.batch != NO_BATCH))
        _, of = np.unique(groups.run[rows], return_inverse=True)
        last = np.full(of.max(initial=-1) + 1, NO_BATCH)
        np.maximum.at(last, of, groups.batch[rows])
        return int(groups.ends[rows][groups.batch[rows] < last[of]].max(initial=NEVER // 2))

    def forgotten(self, sent_ms: npt.NDArray[np.int64], kept_since_ms: int) -> Mask:
        """Of raw records that were sent then, which may outlive their group: older than what the contract promises to keep, and a partition has
        deleted some and has none left that is older.
        """
        found = np.zeros(len(sent_ms), np.bool_)
        for partition, span in self._sheet.target.spans.items():
            if span.low > 0:
                # What was redriven outlives its like.
                there = (partition_of(self.at) == partition) & ~self.redriven
                oldest = self.sent_ms[there].min(initial=_NEVER_MS)
                found |= sent_ms <= oldest + CLOCKS_DIFFER_MS
        expired: Mask = sent_ms <= kept_since_ms + CLOCKS_DIFFER_MS
        return found & expired

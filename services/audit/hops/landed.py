"""The hop from a topic to its lake table: each record exactly once, with the values of its first occurrence in a partition."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from services.audit.hops.newest import EXPIRED
from services.audit.records.records import Records
from services.audit.records.window import Where, Window
from services.audit.sources.lake_table import Rows
from services.audit.values.digest import Digests, identity, mix
from services.audit.values.finding import Finding, Kind, Tally
from services.audit.values.place import NOWHERE, Codes, concatenated, coordinate, offset_of, partition_of


class Landing:
    """Compares a topic's window with the rows of its table. Pure: arrays in, findings and tallies out.

    A row is one record: that of its place, or, in the table of a derived topic, of its raw coordinate and revision, so that a
    repeat in the topic is no second row; it is that of a partition's first occurrence which the lake could decode.
    """

    def __init__(
        self,
        window: Window,
        source: str,
        table: str,
        records: Sequence[Records],
        rows: Sequence[Rows],
        latest: Mapping[int, int],
        *,
        own_coordinate: bool,
        is_compacted: bool = False,
        expired_ms: int = 0,
    ) -> None:
        """`source` is the topic that coordinates are of; `latest`: the topic's ends after the table was opened;
        `own_coordinate`: whether the column is the lake writer's. With `is_compacted` the topic keeps the newest record of each key only.
        Dead letters of records that were sent up to `expired_ms` may be deleted by now.
        """
        self.hop = f"{window.topic} → lake"
        self._window, self._source, self._table = window, source, table
        self._derived = source != window.topic
        self._own_coordinate, self._is_compacted = own_coordinate, is_compacted
        self._latest = latest
        names = ("at", "source", "part", "revision")
        self._records = {name: concatenated([getattr(part, name) for part in records], np.int64) for name in names}
        self._rows = {name: concatenated([getattr(part, name) for part in rows], np.int64) for name in names}
        self._redriven = concatenated([part.redriven for part in records], np.bool_)
        self._readable = concatenated([part.readable for part in records], np.bool_)
        self._is_old = concatenated([part.sent_ms for part in records], np.int64) <= expired_ms
        self._record_digests = concatenated([part.row for part in records], np.uint64)
        self._row_digests = concatenated([part.row for part in rows], np.uint64)
        self.tallies = {partition: Tally(self.hop, f"{window.topic}/{partition}") for partition in window.spans}

    def findings(
        self, dead: Codes, purged: Codes, redriven: Codes, audited_before: npt.NDArray[np.bool_]
    ) -> Iterator[Finding]:
        """What is wrong, kind by kind; the tallies are full afterwards.

        `dead`, `purged`: places of records that the lake could not decode, `redriven` of those that were sent back. `audited_before`: for each record whether its raw
        record was audited with an earlier window, so that the row is there already.
        """
        where = self._window.where(self._records["at"])
        landed = np.isin(self._records["at"], self._rows["at"])
        wanted = np.flatnonzero((where == Where.INSIDE) & (~audited_before | (self._redriven & landed)))
        ids = self._ids(self._records)
        told = np.isin(self._records["at"], np.concatenate([dead, purged]))
        expired = ~self._readable & self._is_old & ~told & ~landed
        set_aside = (told | expired) & ~landed
        wanted = self._taken(wanted, ids, landed, set_aside)
        row_where = self._window.where(self._rows["at"], self._latest)
        row_ids = self._ids(self._rows)
        chosen = np.flatnonzero((row_where == Where.INSIDE) | (row_where == Where.NOWHERE))
        chosen = chosen[np.argsort(row_ids[chosen], kind="stable")]
        for partition, tally in self.tallies.items():
            tally.records = int(np.sum(partition_of(self._records["at"][where == Where.INSIDE]) == partition))
            tally.notes.update(self._window.notes(partition))
            gone = int(np.sum((row_where == Where.GONE) & (partition_of(self._rows["at"]) == partition)))
            tally.notes["of records that are deleted by now, not compared"] += gone
        yield from self._losses(wanted, ids, row_ids[chosen], dead, purged, redriven, expired)
        yield from self._extras(wanted, ids, chosen, row_ids)
        yield from self._changes(wanted, ids, chosen, row_ids)

    def row_count(self, total: int, before: int | None) -> Iterator[Finding]:
        """Rows that an earlier audit has seen are not compared again, but must be as many as they were `before`."""
        found = total - int(self._beyond("audited").sum())
        if before is not None and found != before:
            kind: Kind = "lost" if found < before else "doubled"
            detail = (
                f"{found:,} rows of what the last clean audit has seen, and there were {before:,}: --full says which"
            )
            yield Finding(kind, self.hop, self._window.topic, self._table, detail)

    def rows_before_the_cut(self, total: int) -> int:
        """How many of all rows the next audit will not compare."""
        return total - int(self._beyond("end").sum())

    def _beyond(self, bound: str) -> npt.NDArray[np.bool_]:
        """The rows at or after this bound of their partition's span."""
        at = self._rows["at"]
        found = np.zeros(len(at), np.bool_)
        for partition, span in self._window.spans.items():
            found |= (partition_of(at) == partition) & (offset_of(at) >= getattr(span, bound))
        return found

    def _ids(self, of: dict[str, Codes]) -> Digests:
        if not self._derived:
            return of["at"].astype(np.uint64)
        nowhere = of["source"] == NOWHERE
        raw = identity(of["source"], of["part"]) + of["revision"].astype(np.uint64)
        return np.where(nowhere, ~mix(of["at"].astype(np.uint64)), raw)

    def _taken(
        self,
        wanted: npt.NDArray[np.int64],
        ids: Digests,
        landed: npt.NDArray[np.bool_],
        set_aside: npt.NDArray[np.bool_],
    ) -> npt.NDArray[np.int64]:
        """Of each id among `wanted` the occurrence that the lake had to take, sorted by id.

        Of a partition that is the first; of what the lake could not decode it takes a later one. Which partition came first only the
        row tells.
        """
        partitions = partition_of(self._records["at"])
        wanted = wanted[np.lexsort((set_aside[wanted], partitions[wanted], ids[wanted]))]
        begins = np.ones(len(wanted), np.bool_)
        begins[1:] = (np.diff(ids[wanted]) != 0) | (np.diff(partitions[wanted]) != 0)
        wanted = wanted[begins]
        wanted = wanted[np.lexsort((~landed[wanted], set_aside[wanted], ids[wanted]))]
        _, firsts = np.unique(ids[wanted], return_index=True)
        return wanted[firsts]

    def _losses(
        self,
        wanted: npt.NDArray[np.int64],
        ids: Digests,
        row_ids: Digests,
        dead: Codes,
        purged: Codes,
        redriven: Codes,
        expired: npt.NDArray[np.bool_],
    ) -> Iterator[Finding]:
        without_row = wanted[~_among(ids[wanted], row_ids)]
        missing = self._records["at"][without_row]
        is_dead, is_purged = np.isin(missing, dead), np.isin(missing, purged)
        is_expired = expired[without_row]
        for partition, tally in self.tallies.items():
            tally.notes["dead letters"] += int(np.sum(partition_of(missing[is_dead]) == partition))
            tally.notes["purged dead letters"] += int(np.sum(partition_of(missing[is_purged & ~is_dead]) == partition))
            tally.notes[EXPIRED] += int(np.sum(partition_of(missing[is_expired]) == partition))
        for at in np.sort(missing[~is_dead & ~is_purged & ~is_expired]).tolist():
            yield self._finding("lost", at, "no row of it")
        can_be_read = is_dead & self._readable[without_row] & ~np.isin(missing, redriven)
        for at in np.sort(missing[can_be_read]).tolist():
            yield self._finding("set aside", at, "no row but a dead letter of it, which can be read: redrive it")

    def _extras(
        self, wanted: npt.NDArray[np.int64], ids: Digests, chosen: npt.NDArray[np.int64], row_ids: Digests
    ) -> Iterator[Finding]:
        """Rows of no record, and all rows of a record but one."""
        found = row_ids[chosen]
        strange = chosen[~_among(found, ids[wanted])]
        if self._is_compacted:
            places = self._rows["at"][strange]
            removed = (self._window.where(places) == Where.INSIDE) & ~np.isin(places, self._records["at"])
            for partition, tally in self.tallies.items():
                count = int(np.sum(removed & (partition_of(places) == partition)))
                tally.notes["of records that compaction may have removed, not compared"] += count
            strange = strange[~removed]
        for row in strange.tolist():
            at, source = int(self._rows["at"][row]), int(self._rows["source"][row])
            named = f" of {coordinate(self._source, source)}" if self._derived and source >= 0 else ""
            yield self._finding("phantom", at, f"a row{named} at this place, but no such record")
        _, first, counts = np.unique(found, return_index=True, return_counts=True)
        for index, count in zip(first[counts > 1].tolist(), counts[counts > 1].tolist(), strict=True):
            yield self._finding("doubled", int(self._rows["at"][chosen[index]]), f"{count} rows of it")

    def _changes(
        self, wanted: npt.NDArray[np.int64], ids: Digests, chosen: npt.NDArray[np.int64], row_ids: Digests
    ) -> Iterator[Finding]:
        if not len(wanted):
            return
        chosen = chosen[_among(row_ids[chosen], ids[wanted])]
        record = wanted[np.searchsorted(ids[wanted], row_ids[chosen])]
        values = self._record_digests[record] != self._row_digests[chosen]
        places = self._records["at"][record] != self._rows["at"][chosen]
        if self._own_coordinate:
            places |= self._records["source"][record] != self._rows["source"][chosen]
        for index in np.flatnonzero(values | places).tolist():
            what = "its values are not the record's" if values[index] else "its place or coordinate is not the record's"
            yield self._finding("changed", int(self._records["at"][record[index]]), what)

    def _finding(self, kind: Kind, at: int, detail: str) -> Finding:
        partition = partition_of(at)
        known = partition in self.tallies
        place = f"{self._window.topic}/{partition}" if known else self._window.topic
        named = coordinate(self._window.topic, at) if at >= 0 else self._table
        return Finding(kind, self.hop, place, named, f"{self._table}: {detail}")


def _among(values: Digests, of: Digests) -> npt.NDArray[np.bool_]:
    return np.isin(values, of)

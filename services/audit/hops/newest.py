"""The hop from a topic to a lake table that has the newest record of each key: one row of each, and none of a key that a record took away."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from services.audit.records.records import Records
from services.audit.records.window import Window
from services.audit.sources.lake_table import Rows
from services.audit.values.digest import NULL, Digests, mix
from services.audit.values.finding import Finding, Kind, Tally
from services.audit.values.place import Codes, concatenated, coordinate, offset_of, partition_of

_OPEN = "of keys with records after the table's position, which compaction may have removed before, not compared"
_GONE = "of records that are deleted by now, not compared"
EXPIRED = "that can't be decoded, whose dead letters are deleted by now"


class NewestLanding:
    """Compares all that a topic has with all rows of its table. Pure: arrays in, findings and tallies out.

    A key is one of a partition, as it is for brokers: they keep its newest record. That counts up to the position in the table's commit. What a later record
    follows may be gone from the topic by now. So of a key with later records only a row of a record that is there can be wrong.
    """

    def __init__(
        self,
        window: Window,
        table: str,
        records: Sequence[Records],
        rows: Sequence[Rows],
        positions: Mapping[int, int],
        *,
        own_coordinate: bool,
        expired_ms: int = 0,
    ) -> None:
        """`records` are all that the topic has, those after the `positions` of the table included, if there are any; `own_coordinate`: whether that column is the lake writer's.
        Dead letters of records that were sent up to `expired_ms` may be deleted by now.
        """
        self.hop = f"{window.topic} → lake"
        self._window, self._table, self._own_coordinate = window, table, own_coordinate
        self._at = concatenated([part.at for part in records], np.int64)
        self._key = concatenated([part.key for part in records], np.uint64)
        self._has_value = concatenated([part.has_value for part in records], np.bool_)
        self._readable = concatenated([part.readable for part in records], np.bool_)
        self._is_old = concatenated([part.sent_ms for part in records], np.int64) <= expired_ms
        self._digests = concatenated([part.row for part in records], np.uint64)
        self._row_at = concatenated([part.at for part in rows], np.int64)
        self._row_source = concatenated([part.source for part in rows], np.int64)
        self._row_digests = concatenated([part.row for part in rows], np.uint64)
        keys = [part.key if len(part.key) else np.full(len(part), NULL) for part in rows]
        self._row_key = concatenated(keys, np.uint64)
        self._source = concatenated([part.source for part in records], np.int64)
        # Which records the table has to tell of; the others are of after its positions.
        self._taken = np.zeros(len(self._at), np.bool_)
        for partition, end in positions.items():
            self._taken |= (partition_of(self._at) == partition) & (offset_of(self._at) < end)
        self._positions = positions
        self.tallies = {partition: Tally(self.hop, f"{window.topic}/{partition}") for partition in window.spans}

    def findings(self, dead: Codes, purged: Codes, redriven: Codes) -> Iterator[Finding]:
        """What is wrong, kind by kind; the tallies are full afterwards. `dead`, `purged`, `redriven`: places of records that the lake could not decode, and what
        became of them.
        """
        for partition, tally in self.tallies.items():
            tally.records = int(np.sum(partition_of(self._at[self._taken]) == partition))
        ids, row_ids = _of_partition(self._key, self._at), _of_partition(self._row_key, self._row_at)
        landed = np.isin(_of_record(ids, self._at), _of_record(row_ids, self._row_at))
        told = np.isin(self._at, np.concatenate([dead, purged]))
        # The broker keeps the newest record of a key without end, and a letter as long as its contract says.
        expired = self._is_bad() & self._is_old & ~told & ~landed
        self._count(EXPIRED, self._at[expired & self._taken])
        set_aside = (told | expired) & ~landed
        yield from self._without_key(set_aside)
        newest = self._newest(ids)
        is_open = np.unique(ids[~self._taken & (self._key != NULL)])
        # Of several rows of a key the one that is furthest is compared.
        order = np.lexsort((-self._row_at, row_ids))
        sorted_ids, first, counts = np.unique(row_ids[order], return_index=True, return_counts=True)
        yield from self._doubled(row_ids, order, first, counts)
        yield from self._spread()
        wanted = newest[self._has_value[newest] & ~set_aside[newest]]
        yield from self._lost(wanted, ids, sorted_ids, is_open)
        yield from self._wrong(order[first], row_ids, wanted, newest, ids, is_open)
        self._note(dead, purged, set_aside)
        can_be_read = newest[set_aside[newest] & self._readable[newest]]
        for at in np.sort(self._at[can_be_read]).tolist():
            if at in dead and at not in redriven:
                yield self._finding("set aside", at, "no row but a dead letter of it, which can be read: redrive it")

    def _newest(self, ids: Digests) -> npt.NDArray[np.int64]:
        """Of each key the last record up to the table's position, sorted by `ids`."""
        chosen = np.flatnonzero(self._taken & (self._key != NULL))
        chosen = chosen[np.lexsort((self._at[chosen], ids[chosen]))]
        last = np.append(np.diff(ids[chosen]) != 0, True)[: len(chosen)]
        found: npt.NDArray[np.int64] = chosen[last]
        return found

    def _is_bad(self) -> npt.NDArray[np.bool_]:
        """Which records the lake has to set aside."""
        bad: npt.NDArray[np.bool_] = (self._has_value & ~self._readable) | (self._key == NULL)
        return bad

    def _without_key(self, set_aside: npt.NDArray[np.bool_]) -> Iterator[Finding]:
        for at in self._at[self._taken & (self._key == NULL) & ~set_aside].tolist():
            yield self._finding("lost", at, "it has no key, and there is no dead letter of it")

    def _doubled(
        self,
        row_ids: Digests,
        order: npt.NDArray[np.int64],
        first: npt.NDArray[np.int64],
        counts: npt.NDArray[np.int64],
    ) -> Iterator[Finding]:
        for begin, count in zip(first[counts > 1].tolist(), counts[counts > 1].tolist(), strict=True):
            newest = int(self._row_at[order[begin : begin + count]].max())
            yield self._finding("doubled", newest, f"{count} rows of its key")

    def _spread(self) -> Iterator[Finding]:
        """Nothing orders the records of two partitions, so each has a row."""
        _, first, of = np.unique(self._row_key, return_index=True, return_inverse=True)
        others = partition_of(self._row_at) != partition_of(self._row_at[first][of])
        for row in np.flatnonzero(others & (self._row_at >= 0)).tolist():
            other = coordinate(self._window.topic, int(self._row_at[first[of[row]]]))
            why = f"its key has the row of {other}, too, which is in another partition: a producer's partitioner, or partitions that were added"
            yield self._finding("doubled", int(self._row_at[row]), why)

    def _lost(
        self, wanted: npt.NDArray[np.int64], ids: Digests, row_ids: Digests, is_open: Digests
    ) -> Iterator[Finding]:
        without = wanted[~np.isin(ids[wanted], row_ids)]
        open_too = np.isin(ids[without], is_open)
        self._count(_OPEN, self._at[without[open_too]])
        for at in np.sort(self._at[without[~open_too]]).tolist():
            yield self._finding("lost", at, "no row of its key, whose newest record it is")

    def _wrong(
        self,
        rows: npt.NDArray[np.int64],
        row_ids: Digests,
        wanted: npt.NDArray[np.int64],
        newest: npt.NDArray[np.int64],
        ids: Digests,
        is_open: Digests,
    ) -> Iterator[Finding]:
        """Of each key one row, compared with its newest record."""
        newest_at = dict(zip(ids[newest].tolist(), newest.tolist(), strict=True))
        has_row = {*wanted.tolist()}
        there = np.isin(self._row_at, self._at)
        opened = np.isin(row_ids, is_open)
        for row in rows.tolist():
            at, record = int(self._row_at[row]), newest_at.get(int(row_ids[row]))
            if record is not None and record in has_row and self._at[record] == at:
                yield from self._compared(row, record)
            elif self._is_open(at, record, opened=bool(opened[row]), there=bool(there[row])):
                self._count(_OPEN, self._row_at[[row]])
            elif record in has_row:
                named = coordinate(self._window.topic, at) if at >= 0 else "no record"
                yield self._finding(
                    "changed", int(self._at[record]), f"the row of its key is of {named}, and it is the newest"
                )
            elif record is not None:
                why = "has no value" if not self._has_value[record] else "is a dead letter"
                newer = coordinate(self._window.topic, int(self._at[record]))
                yield self._finding("phantom", at, f"a row of it, but its key's newest record, {newer}, {why}")
            elif at >= 0 and offset_of(at) < self._low(partition_of(at)):
                self._count(_GONE, self._row_at[[row]])
            else:
                yield self._finding("phantom", at, "a row at this place, but no such record, nor one of its key")

    def _low(self, partition: int) -> int:
        span = self._window.spans.get(partition)
        return 0 if span is None else span.low

    def _is_open(self, at: int, record: int | None, *, opened: bool, there: bool) -> bool:
        """Whether a record may have been at this place that compaction has removed since, and been the newest then."""
        if not opened or there or offset_of(at) >= self._positions.get(partition_of(at), 0):
            return False
        return record is None or at > self._at[record]

    def _compared(self, row: int, record: int) -> Iterator[Finding]:
        at = int(self._at[record])
        if self._digests[record] != self._row_digests[row]:
            yield self._finding("changed", at, "its values are not the record's")
        elif self._own_coordinate and self._source[record] != self._row_source[row]:
            yield self._finding("changed", at, "its coordinate is not the record's")

    def _note(self, dead: Codes, purged: Codes, set_aside: npt.NDArray[np.bool_]) -> None:
        at = self._at[set_aside & self._taken]
        is_dead = np.isin(at, dead)
        self._count("dead letters", at[is_dead])
        self._count("purged dead letters", at[~is_dead & np.isin(at, purged)])
        self._count("without a value", self._at[self._taken & ~self._has_value & (self._key != NULL)])

    def _count(self, note: str, places: Codes) -> None:
        for partition, tally in self.tallies.items():
            if count := int(np.sum(partition_of(places) == partition)):
                tally.notes[note] += count

    def _finding(self, kind: Kind, at: int, detail: str) -> Finding:
        partition = partition_of(at)
        place = f"{self._window.topic}/{partition}" if partition in self.tallies else self._window.topic
        named = coordinate(self._window.topic, at) if at >= 0 else self._table
        return Finding(kind, self.hop, place, named, f"{self._table}: {detail}")


def _of_partition(keys: Digests, at: Codes) -> Digests:
    """One number for each key of a partition."""
    return mix(keys ^ mix(partition_of(at).astype(np.uint64)))


def _of_record(ids: Digests, at: Codes) -> Digests:
    return mix(ids ^ mix(at.astype(np.uint64)))

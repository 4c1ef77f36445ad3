"""`MadePairs`: the records that name raw ones, and what is wrong with them by themselves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from services.audit.joins.partners import Rows
from services.audit.joins.sheet import Sheet
from services.audit.joins.side import Mask
from services.audit.records.pairs import ALONE, Pairs
from services.audit.records.records import Records
from services.audit.values.digest import NULL
from services.audit.values.finding import Finding
from services.audit.values.place import astray, concatenated, coordinate, partition_of

_NEVER_MS = 1 << 62


class MadePairs:
    """One entry of each array for each record. `is_old`: an earlier run than the one that goes on has written it; `is_rebuilt`: there was one. `is_older`: its
    version of the schema lacks carried fields.
    """

    def __init__(self, sheet: Sheet, records: Sequence[Records], begun_ms: int) -> None:
        """`begun_ms`: when the run began that goes on, milliseconds since 1970; 0: nobody knows of an earlier one."""
        self._sheet = sheet
        self.at = concatenated([part.at for part in records], np.int64)
        self.sent_ms = concatenated([part.sent_ms for part in records], np.int64)
        self.readable = concatenated([part.readable for part in records], np.bool_)
        self.redriven = concatenated([part.redriven for part in records], np.bool_)
        self.key = concatenated([part.key for part in records], np.uint64)
        self.is_older: Mask = concatenated([part.compared for part in records], np.int8) != 0
        self.pairs = Pairs.joined([part.pairs for part in records if part.pairs is not None])
        self.is_old: Mask = self.sent_ms < begun_ms
        self.is_rebuilt = bool(self.is_old.any())
        self.is_alone: Mask = self.pairs.second == ALONE

    def own(self, row: int) -> str:
        """The coordinate of the record."""
        return coordinate(self._sheet.target.topic, int(self.at[row]))

    def findings(self) -> Iterator[Finding]:
        """Keys that are not what the fields say, or in several partitions, and ids that came twice."""
        for row in np.flatnonzero(~self.pairs.has_own_key).tolist():
            yield self._sheet.of_made("changed", int(self.at[row]), "its key is not what its fields say")
        yield from self._spread()
        yield from self._doubles()

    def _spread(self) -> Iterator[Finding]:
        rows = np.flatnonzero(self.key != NULL)
        rows = rows[np.lexsort((self.at[rows], self.sent_ms[rows]))]
        for index, first in astray(self.at[rows], self.key[rows]):
            other = coordinate(self._sheet.target.topic, first)
            what = f"it has the key of {other}, which is in another partition"
            yield self._sheet.of_made("out of order", int(self.at[rows[index]]), what)

    def _doubles(self) -> Iterator[Finding]:
        """Two records of one id. A rebuild writes each again, and a redrive one."""
        rows = np.flatnonzero(self.pairs.first >= 0)
        first, second = self.pairs.first[rows], self.pairs.second[rows]
        order = np.lexsort((self.at[rows], self.sent_ms[rows], ~self.is_old[rows], second, first))
        rows, first, second = rows[order], first[order], second[order]
        again = (first[1:] == first[:-1]) & (second[1:] == second[:-1]) & (second[1:] >= ALONE)
        # -1 is no coordinate at all: of those each is a phantom.
        again &= (second[1:] >= 0) | (second[1:] == ALONE)
        sent_back = again & (self.redriven[rows[1:]] | self.redriven[rows[:-1]])
        self._note_second("sent again, by a redrive", rows[1:][sent_back])
        again &= ~sent_back
        by_one_run = again & ~self.is_old[rows][:-1]
        for index in np.flatnonzero(by_one_run).tolist():
            what = f"it has the id of {self.own(int(rows[index]))}, too"
            yield self._sheet.of_made("doubled", int(self.at[rows[index + 1]]), what)
        self._note_second("written again, by a rebuild", rows[1:][again & ~by_one_run])

    def _note_second(self, note: str, rows: Rows) -> None:
        self._sheet.count(self._sheet.target, self.at[rows], np.ones(len(rows), np.bool_), note)

    def open_deleted_until(self, kept_since_ms: int) -> int | None:
        """When the newest record was sent, at most, that an earlier audit left to be read again, and that is deleted now; None if there is none."""
        until = None
        for partition, span in self._sheet.target.spans.items():
            if span.audited > 0 and span.low > span.reread:
                left = self.sent_ms[partition_of(self.at) == partition]
                until = max(until or 0, kept_since_ms, int(left[0]) if len(left) else 0)
        return until

    def may_be_forgotten(self, sent_ms: npt.NDArray[np.int64], kept_since_ms: int, clocks_ms: int) -> Mask:
        """Of raw records that were sent then, which may outlive what was made of them: older than what the contract promises to keep, and a
        partition has deleted some and has none left that is older.
        """
        found = np.zeros(len(sent_ms), np.bool_)
        for partition, span in self._sheet.target.spans.items():
            if span.low > 0:
                oldest = self.sent_ms[partition_of(self.at) == partition].min(initial=_NEVER_MS)
                found |= sent_ms <= oldest + clocks_ms
        return found & (sent_ms <= kept_since_ms + clocks_ms)

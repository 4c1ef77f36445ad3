"""`BadRecords`: the raw records of a list that can't be read, each of which has a dead letter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from services.audit.aggregates.letters import Letters
from services.audit.hops.derived import CLOCKS_DIFFER_MS
from services.audit.joins.sheet import Sheet
from services.audit.records.records import Records
from services.audit.records.window import Where, Window
from services.audit.values.finding import Finding
from services.audit.values.place import Codes, concatenated, coordinate, named_in_vain


class BadRecords:
    """Compares a raw topic's window with the letters of the pipeline that ranks its records. Pure: arrays in, findings and tallies out."""

    def __init__(
        self,
        raw: Window,
        records: Sequence[Records],
        target: Window,
        dead: Letters,
        purged: Codes,
        redriven: Codes,
        sent_back: Codes,
        latest: dict[int, int],
    ) -> None:
        """`records` in the order of partitions; `redriven`: raw records that were sent back, `sent_back`: those for this pipeline's letters;
        `latest`: the raw topic's ends by now.
        """
        self.sheet = Sheet([raw], target)
        self._raw, self._dead, self._purged, self._redriven, self._latest = raw, dead, purged, redriven, latest
        self._set_aside = np.concatenate([dead.source, purged, sent_back])
        at = concatenated([part.at for part in records], np.int64)
        inside = raw.where(at) == Where.INSIDE
        self._at = at[inside]
        self._good = concatenated([part.readable for part in records], np.bool_)[inside]
        self._payload = concatenated([part.payload for part in records], np.uint64)[inside]
        self._sent_ms = concatenated([part.sent_ms for part in records], np.int64)[inside]

    @property
    def not_counted(self) -> Codes:
        """Good records before the cut that were set aside, whether or not their letters are still there: the pipeline has not counted them."""
        found: Codes = self._at[self._good & np.isin(self._at, self._set_aside)]
        return found

    @property
    def ahead(self) -> Codes:
        """Records with a dead letter that came after the cut, good or not."""
        found: Codes = np.unique(self._dead.source[self._raw.where(self._dead.source, self._latest) == Where.AHEAD])
        return found

    def findings(self, *, is_rebuilt: bool) -> Iterator[Finding]:
        """What is wrong. After a rebuild a record may have several letters."""
        raw, dead, sheet = self._raw, self._dead, self.sheet
        where = raw.where(dead.source, self._latest)
        where[(where == Where.INSIDE) & ~np.isin(dead.source, self._at)] = Where.NOWHERE
        for index in np.flatnonzero(where == Where.NOWHERE).tolist():
            own = coordinate(dead.topic, int(dead.at[index]))
            named, why = named_in_vain(raw.topic, int(dead.source[index]), own)
            yield sheet.of_raw("phantom", raw, int(dead.source[index]), why, named)
        sources, counts = np.unique(dead.source[where != Where.NOWHERE], return_counts=True)
        for source, count in zip(sources[counts > 1].tolist(), counts[counts > 1].tolist(), strict=True):
            if not is_rebuilt:
                yield sheet.of_raw("doubled", raw, source, f"{count} times in {dead.topic}")
        inside = np.flatnonzero(where == Where.INSIDE)
        differs = self._payload[np.searchsorted(self._at, dead.source[inside])] != dead.payload[inside]
        for index in inside[differs].tolist():
            own = coordinate(dead.topic, int(dead.at[index]))
            yield sheet.of_raw("changed", raw, int(dead.source[index]), f"key or value differs in {own}")
        is_dead, is_purged = np.isin(self._at, dead.source), np.isin(self._at, self._purged)
        for at in self._at[is_dead & self._good & ~np.isin(self._at, self._redriven)].tolist():
            yield sheet.of_raw("set aside", raw, at, f"{dead.topic} has it, and it is good: redrive it")
        left = ~self._good & ~np.isin(self._at, self._set_aside)
        expired = left & dead.has_deleted & (self._sent_ms <= dead.kept_since_ms + CLOCKS_DIFFER_MS)
        for at in self._at[left & ~expired].tolist():
            yield sheet.of_raw("lost", raw, at, f"it can't be read, and is not in {dead.topic}")
        sheet.count(raw, self._at, np.ones(len(self._at), np.bool_))
        sheet.count(raw, self._at, is_dead, "dead letters")
        sheet.count(raw, self._at, is_purged & ~is_dead, "purged dead letters")
        sheet.count(raw, self._at, expired, "that are bad, and whose dead letters are deleted by now")
        sheet.note_deleted(raw)

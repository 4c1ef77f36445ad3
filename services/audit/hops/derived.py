"""The hop from a raw topic to one that derives from it: each raw record, or each that its filter lets through, is in exactly one of
{derived, dead letters}; where it becomes many, with all its parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from services.audit.records.recompute import GONE, NEVER, OLDER, OTHER
from services.audit.records.records import Records
from services.audit.records.window import Where, Window
from services.audit.values.digest import NULL
from services.audit.values.field_sets import UNKNOWN
from services.audit.values.finding import Finding, Kind, Tally
from services.audit.values.place import (
    ENDLESS,
    WHOLE,
    Codes,
    Parts,
    astray,
    concatenated,
    coordinate,
    named_in_vain,
    offset_of,
    partition_of,
)

_NOT_COMPARED = {
    GONE: "names dimension versions that are gone, what was looked up in them not compared",
    OTHER: "names dimension versions that another contract made, what was looked up in them not compared",
    OLDER: "of a schema version without some looked-up fields, those not compared",
}

_NEVER_MS = 1 << 62
CLOCKS_DIFFER_MS = 60_000
"""By so much a producer's clock may be ahead of the time at which its record was derived."""

_NO_CODES: Codes = np.zeros(0, np.int64)
_PART_BITS = 30

Mask = npt.NDArray[np.bool_]


class Made:
    """Everything that names raw records, or a `part` of one: the derived ones, or the dead letters. One entry of each array for each."""

    def __init__(self, window: Window, at: Codes, source: Codes, part: Parts | None = None) -> None:
        self.window, self.at, self.source = window, at, source
        self.part = np.full(len(at), WHOLE) if part is None else part
        # What is read again for its records ahead of the last cut was otherwise looked at then.
        self.fresh: Mask = np.isin(window.where(at), (Where.INSIDE, Where.GONE))

    def resume(self, raw: Window) -> dict[int, int]:
        """For each partition the first offset that the next audit must read again."""
        named = np.unique(partition_of(self.source[self.source >= 0])).tolist()
        endless = dict.fromkeys({*raw.spans, *named}, ENDLESS - 1)
        ahead = self.at[raw.where(self.source, endless) == Where.AHEAD]
        return {
            partition: int(min([span.end, *(offset_of(ahead[partition_of(ahead) == partition]))]))
            for partition, span in self.window.spans.items()
        }


class Derivation:
    """Compares a raw topic's window with all that was made of it. Pure: arrays in, findings and tallies out."""

    def __init__(
        self,
        raw: Window,
        records: Sequence[Records],
        derived: Made,
        derived_records: Sequence[Records],
        dead: Made,
        dead_payloads: npt.NDArray[np.uint64],
        purged: Codes,
        latest: Mapping[int, int],
        looked_up: Sequence[str],
        kept_since_ms: int,
        *,
        redriven: Codes = _NO_CODES,
        at_least_once: bool = False,
        is_filtered: bool = False,
        has_parts: bool = False,
    ) -> None:
        """`records` in the order of partitions; `latest`: the raw topic's ends after everything else was read; `looked_up`: the
        fields that the records' verdicts are about; `kept_since_ms`: what was derived since is there still, by the contract; `redriven`:
        records that were sent back. With `at_least_once` a derived record or dead letter may come again, and that
        is noted; each one of a raw record in this window is compared all the same. So it always is of what a redrive sent again.
        `is_filtered`: the derived topic may leave raw records out; which ones, the records' `wanted` tell, if they tell it. `has_parts`: it
        may have several of one, which say how many they are.
        """
        self.hop = f"{raw.topic} → {derived.window.topic}"
        self._raw, self._derived, self._dead = raw, derived, dead
        self._at = concatenated([part.at for part in records], np.int64)
        topic = derived.window.topic
        self._found = {
            "shared": concatenated([part.shared[topic] for part in derived_records], np.uint64),
            "key": concatenated([part.key for part in derived_records], np.uint64),
        }
        self._expected = {
            "shared": concatenated([part.shared[topic] for part in records], np.uint64),
            "key": concatenated([part.key for part in records], np.uint64),
            "payload": concatenated([part.payload for part in records], np.uint64),
        }
        self._compared = concatenated([part.compared for part in derived_records], np.int8)
        self._is_filtered, self._has_parts = is_filtered, has_parts
        self._parts = concatenated([part.parts for part in derived_records], np.int64)
        told = all(topic in part.wanted for part in records)
        self._wanted = concatenated([part.wanted[topic] for part in records], np.bool_) if told else None
        self._readable = concatenated([part.readable for part in records], np.bool_)
        self._raw_sent_ms = concatenated([part.sent_ms for part in records], np.int64)
        self._sent_ms = concatenated([part.sent_ms for part in derived_records], np.int64)
        self._sent_back = redriven
        self._revision = concatenated([part.revision for part in derived_records], np.int64)
        self._redriven = concatenated([part.redriven for part in derived_records], np.bool_)
        self._dead_payloads = dead_payloads
        self._purged = purged
        self._latest = latest
        self._verdict = concatenated([part.verdict for part in derived_records], np.int16)
        self._looked_up = looked_up
        self._kept_since_ms = kept_since_ms
        self._at_least_once = at_least_once
        self.tallies = {
            partition: Tally(self.hop, f"{raw.topic}/{partition}", int(np.sum(partition_of(self._at) == partition)))
            for partition in raw.spans
        }

    def findings(self) -> Iterator[Finding]:
        """What is wrong, kind by kind; the tallies are full afterwards."""
        for partition, tally in self.tallies.items():
            tally.notes.update(self._raw.notes(partition))
        inside = self._claims(self._derived), self._claims(self._dead)
        for made, where in zip((self._derived, self._dead), inside, strict=True):
            yield from self._phantoms(made, where)
        derived, dead = (where == Where.INSIDE for where in inside)
        first = derived & (self._revision == 0)
        yield from self._losses(self._derived.source[first], self._dead.source[dead])
        yield from self._doubles(first, self._dead.source[dead])
        if self._has_parts:
            yield from self._wrong_parts(first)
            yield from self._missing_parts(first)
            yield from self._in_both(self._derived.source[first], self._dead.source[dead])
        # Of raw records audited before, repairs and what was redriven are new all the same.
        new = derived | (self._derived.fresh & (inside[0] == Where.BEFORE))
        repaired = new & (self._revision > 0)
        yield from self._doubled_revisions(repaired & ~self._redriven)
        yield from self._negative_revisions(new & (self._revision < 0))
        yield from self._wrong_lookups(derived | repaired)
        yield from self._changes(derived, dead)
        yield from self._unreadable(derived, dead)
        yield from self._let_through(derived)
        # With those of raw records behind the cut: what they overtook lies before it, and no later audit sees both.
        ordered = (derived | (inside[0] == Where.AHEAD)) & (self._revision == 0) & ~self._redriven
        yield from self._disorder(ordered)
        yield from self._spread(ordered)
        self._note_redriven(new & self._redriven)

    def _claims(self, made: Made) -> npt.NDArray[np.int8]:
        """Where each one's raw record lies; BEFORE for what needs no look."""
        where = self._raw.where(made.source, self._latest)
        inside = where == Where.INSIDE
        places = np.searchsorted(self._at, made.source[inside])
        known = np.zeros(inside.sum(), np.bool_)
        within = places < len(self._at)
        known[within] = self._at[places[within]] == made.source[inside][within]
        where[np.flatnonzero(inside)[~known]] = Where.NOWHERE
        return where

    def _phantoms(self, made: Made, where: npt.NDArray[np.int8]) -> Iterator[Finding]:
        """Of raw records that don't exist, or that were audited before and have what was made of them already."""
        topic = made.window.topic
        for index in np.flatnonzero(where == Where.NOWHERE):
            source, own = int(made.source[index]), coordinate(topic, int(made.at[index]))
            named, why = named_in_vain(self._raw.topic, source, own)
            yield self._finding("phantom", source, named, why)
        again = made.fresh & (where == Where.BEFORE)
        if made is self._derived:
            again &= (self._revision == 0) & ~self._redriven
        for index in np.flatnonzero(again):
            source, own = int(made.source[index]), coordinate(topic, int(made.at[index]))
            if self._at_least_once:
                self._note_repeats(source, 1)
                continue
            yield self._finding(
                "doubled",
                source,
                coordinate(self._raw.topic, source),
                f"{own} is one more than the last clean audit saw",
            )
        for partition, tally in self.tallies.items():
            gone = (where == Where.GONE) & (partition_of(made.source) == partition)
            if gone.any():
                tally.notes["of records that are deleted by now, not compared"] += int(gone.sum())

    def _losses(self, derived: Codes, dead: Codes) -> Iterator[Finding]:
        kept = np.concatenate([derived, dead])
        missing = self._at[~np.isin(self._at, kept)]
        missing = missing[~self._left_out(missing)]
        is_purged = np.isin(missing, self._purged)
        is_forgotten = self._forgotten(missing) & ~is_purged
        for partition, tally in self.tallies.items():
            tally.notes["dead letters"] += int(np.sum(partition_of(dead) == partition))
            tally.notes["purged dead letters"] += int(np.sum(partition_of(missing[is_purged]) == partition))
            tally.notes["whose derived records are deleted by now, not compared"] += int(
                np.sum(partition_of(missing[is_forgotten]) == partition)
            )
        why = "neither derived nor among the dead letters"
        if any(span.low > 0 for span in self._dead.window.spans.values()):
            why += f", of which {self._dead.window.topic} has deleted some"
        for source in missing[~is_purged & ~is_forgotten].tolist():
            yield self._finding("lost", source, coordinate(self._raw.topic, source), why)

    def _left_out(self, missing: Codes) -> Mask:
        """Which of these readable raw records the derived topic may do without."""
        if not self._is_filtered:
            return np.zeros(len(missing), np.bool_)
        places = np.searchsorted(self._at, missing)
        left_out: Mask = self._readable[places] & (True if self._wanted is None else ~self._wanted[places])
        note = "left out, and no filter tells whether rightly" if self._wanted is None else "left out by the filter"
        for partition, tally in self.tallies.items():
            tally.notes[note] += int(np.sum(partition_of(missing[left_out]) == partition))
        return left_out

    def _let_through(self, derived: Mask) -> Iterator[Finding]:
        """What was made of raw records that the filter leaves out."""
        if self._wanted is None:
            return
        rows = np.flatnonzero(derived)
        places = np.searchsorted(self._at, self._derived.source[rows])
        for row in rows[self._readable[places] & ~self._wanted[places]].tolist():
            source, own = (
                int(self._derived.source[row]),
                coordinate(self._derived.window.topic, int(self._derived.at[row])),
            )
            yield self._finding(
                "phantom", source, coordinate(self._raw.topic, source), f"{own} is of it, which the filter leaves out"
            )

    def _forgotten(self, missing: Codes, *, begun: bool = False) -> Mask:
        """Raw records that outlive what was made of them; with `begun` also those that outlive its beginning.

        Retention deletes what is older than the contract says. What a derived partition has deleted lay before all that it
        still has: so it can be gone from one that has deleted anything and has only later records of the same raw partition, or
        none of it and no record older than the raw one.
        """
        forgotten = np.zeros(len(missing), np.bool_)
        sent_ms = self._raw_sent_ms[np.searchsorted(self._at, missing)]
        expired = sent_ms <= self._kept_since_ms + CLOCKS_DIFFER_MS
        for number, span in self._derived.window.spans.items():
            if span.low <= span.audited:
                continue
            # What was redriven is old, and outlives its like.
            there = (partition_of(self._derived.at) == number) & ~self._redriven
            oldest_ms = self._sent_ms[there].min(initial=_NEVER_MS) + CLOCKS_DIFFER_MS
            for partition in self._raw.spans:
                left = self._derived.source[there & (partition_of(self._derived.source) == partition)]
                older = missing < left.min() + begun if len(left) else sent_ms <= oldest_ms
                forgotten |= (partition_of(missing) == partition) & older
        return forgotten & expired

    def _doubles(self, first: Mask, dead: Codes) -> Iterator[Finding]:
        ids, dead = self._ids(self._derived.source, self._derived.part), self._ids(dead, np.full(len(dead), WHOLE))
        sent, redriven = (ids[first & mask] for mask in (~self._redriven, self._redriven))
        derived = np.concatenate([sent, np.setdiff1d(redriven, sent)])
        values, counts = np.unique(np.concatenate([derived, dead]), return_counts=True)
        doubled = values[counts > 1]
        for one, count, is_derived, is_dead in zip(
            doubled.tolist(),
            counts[counts > 1].tolist(),
            np.isin(doubled, derived),
            np.isin(doubled, dead),
            strict=True,
        ):
            source, part = int(self._at[one >> _PART_BITS]), (one & (1 << _PART_BITS) - 1) - 1
            if self._at_least_once and not (is_derived and is_dead):
                self._note_repeats(source, count - 1)
                continue
            topics = [made.window.topic for made, has in ((self._derived, is_derived), (self._dead, is_dead)) if has]
            where = " and ".join(topics)
            named = coordinate(self._raw.topic, source, part)
            yield self._finding("doubled", source, named, f"{count} times in {where}")

    def _ids(self, source: Codes, part: Parts) -> Codes:
        """One number for each part of each raw record; of raw records outside of the window's any."""
        return np.searchsorted(self._at, source).astype(np.int64) << _PART_BITS | (part + 1)

    def _in_both(self, derived: Codes, dead: Codes) -> Iterator[Finding]:
        """Raw records with parts and a dead letter: one that can't be derived whole is not derived at all."""
        for source in np.intersect1d(derived, dead).tolist():
            where = f"{self._derived.window.topic} and {self._dead.window.topic}"
            yield self._finding("doubled", source, coordinate(self._raw.topic, source), f"parts of it are in {where}")

    def _wrong_parts(self, first: Mask) -> Iterator[Finding]:
        """Parts that are none of what they say there is, or say otherwise than the others of their raw record."""
        for row in np.flatnonzero(first & (self._derived.part >= self._parts)).tolist():
            yield self._of_parts("changed", row, f"is part {self._derived.part[row]} of {self._parts[row]}")
        if self._at_least_once:
            return  # made again with another dimension version, a record may have another number of parts
        rows = np.flatnonzero(first)
        rows = rows[np.argsort(self._derived.source[rows], kind="stable")]
        source, said = self._derived.source[rows], self._parts[rows]
        for index in (np.flatnonzero((source[1:] == source[:-1]) & (said[1:] != said[:-1])) + 1).tolist():
            why = f"says that there are {said[index]} parts, another one says {said[index - 1]}"
            yield self._of_parts("changed", int(rows[index]), why)

    def _missing_parts(self, first: Mask) -> Iterator[Finding]:
        """Raw records with fewer parts than these say; how many it should be, nobody else tells."""
        rows = np.flatnonzero(first & (self._derived.part < self._parts))
        # Each part once, by raw record and by how many there are to be.
        names = np.stack([self._derived.source[rows], self._parts[rows], self._derived.part[rows]], axis=1)
        names, firsts = np.unique(names, axis=0, return_index=True)
        has_key = self._found["key"][rows[firsts]] != NULL
        _, starts, counts = np.unique(names[:, :2], axis=0, return_index=True, return_counts=True)
        source, said, least = names[starts].T
        # Without a key parts lie in several partitions, and any of them may be deleted first.
        may_be_forgotten = (least == said - counts) | ~has_key[starts]
        whole = np.unique(source[counts == said])
        sources, of = np.unique(source[~np.isin(source, whole)], return_index=True)
        of = np.flatnonzero(~np.isin(source, whole))[of]
        forgotten = may_be_forgotten[of] & self._forgotten(sources, begun=True)
        for partition, tally in self.tallies.items():
            count = int(np.sum(forgotten & (partition_of(sources) == partition)))
            tally.notes["whose first parts are deleted by now, not compared"] += count
            count = int(np.sum(partition_of(np.unique(source)) == partition))
            tally.notes["records of several parts, as many as they say themselves"] += count
        for index in np.flatnonzero(~forgotten).tolist():
            lacking, all_of = int(said[of[index]] - counts[of[index]]), int(said[of[index]])
            why = f"{lacking} of its {all_of} parts are not in {self._derived.window.topic}"
            yield self._finding("lost", int(sources[index]), coordinate(self._raw.topic, int(sources[index])), why)

    def _of_parts(self, kind: Kind, row: int, why: str) -> Finding:
        source, own = int(self._derived.source[row]), int(self._derived.at[row])
        named = coordinate(self._raw.topic, source)
        return self._finding(kind, source, named, f"{coordinate(self._derived.window.topic, own)} {why}")

    def _note_repeats(self, source: int, count: int) -> None:
        self.tallies[partition_of(source)].notes["came again, as at least once allows"] += count

    def _note_redriven(self, redriven: Mask) -> None:
        for partition, tally in self.tallies.items():
            count = int(np.sum(redriven & (partition_of(self._derived.source) == partition)))
            tally.notes["sent again by a redrive"] += count

    def _doubled_revisions(self, later: Mask) -> Iterator[Finding]:
        names = np.stack([self._derived.source[later], self._revision[later], self._derived.part[later]], axis=1)
        values, counts = np.unique(names, axis=0, return_counts=True)
        for (source, revision, _), count in zip(values[counts > 1].tolist(), counts[counts > 1].tolist(), strict=True):
            yield self._finding(
                "doubled", source, coordinate(self._raw.topic, source), f"revision {revision} is there {count} times"
            )

    def _negative_revisions(self, negative: Mask) -> Iterator[Finding]:
        for row in np.flatnonzero(negative):
            source, own = int(self._derived.source[row]), int(self._derived.at[row])
            why = f"{coordinate(self._derived.window.topic, own)} is revision {self._revision[row]} of it, which nobody gives"
            yield self._finding("phantom", source, coordinate(self._raw.topic, source), why)

    def _changes(self, derived: Mask, dead: Mask) -> Iterator[Finding]:
        """Fields that a derived record only carries on, and the bytes of dead letters."""
        if derived.any():
            yield from self._changed_fields(np.flatnonzero(derived))
        rows = np.flatnonzero(dead)
        expected = self._expected["payload"][np.searchsorted(self._at, self._dead.source[rows])]
        yield from self._differing(self._dead, rows[expected != self._dead_payloads[rows]], "key or value")

    def _changed_fields(self, rows: Codes) -> Iterator[Finding]:
        number, places = self._compared[rows], np.searchsorted(self._at, self._derived.source[rows])
        differs = self._found["key"][rows] != self._expected["key"][places]
        differs |= (number != UNKNOWN) & (
            self._found["shared"][rows, number] != self._expected["shared"][places, number]
        )
        # The others are phantoms.
        yield from self._differing(self._derived, rows[differs & self._readable[places]], "key or a field")
        for partition, tally in self.tallies.items():
            older = (number != 0) & (partition_of(self._derived.source[rows]) == partition)
            tally.notes["of a schema version without some carried fields, those not compared"] += int(older.sum())

    def _differing(self, made: Made, rows: Codes, what: str) -> Iterator[Finding]:
        for row in rows.tolist():
            source, own = int(made.source[row]), coordinate(made.window.topic, int(made.at[row]))
            why = f"{what} differs from the raw record in {own}"
            yield self._finding("changed", source, coordinate(self._raw.topic, source), why)

    def _wrong_lookups(self, derived: Mask) -> Iterator[Finding]:
        for partition, tally in self.tallies.items():
            here = derived & (partition_of(self._derived.source) == partition)
            for verdict, note in _NOT_COMPARED.items():
                if count := int(np.sum(here & (self._verdict == verdict))):
                    tally.notes[note] += count
        for row in np.flatnonzero(derived & ((self._verdict >= 0) | (self._verdict == NEVER))).tolist():
            source, own = (
                int(self._derived.source[row]),
                coordinate(self._derived.window.topic, int(self._derived.at[row])),
            )
            verdict = int(self._verdict[row])
            what = (
                f"{own} names no version of a dimension, or one that there never was"
                if verdict == NEVER
                else f"{self._looked_up[verdict]} in {own} is not what the dimension versions say that it names, by services/audit/lookups.yaml"
            )
            yield self._finding("changed", source, coordinate(self._raw.topic, source), what)

    def _unreadable(self, derived: Mask, dead: Mask) -> Iterator[Finding]:
        """What was made of a raw record that can't be read, or not made of one that can."""
        dead = dead & ~np.isin(self._dead.source, self._sent_back)
        cases: tuple[tuple[Made, Mask, bool, Kind, str], ...] = (
            (self._derived, derived, False, "phantom", "is of it, which can't be read"),
            (self._dead, dead, True, "set aside", "is a dead letter of it, which can be read: redrive it"),
        )
        for made, chosen, readable, kind, why in cases:
            rows = np.flatnonzero(chosen)
            rows = rows[self._readable[np.searchsorted(self._at, made.source[rows])] == readable]
            _, firsts = np.unique(made.source[rows], return_index=True)
            for row in rows[firsts].tolist():
                source, own = int(made.source[row]), coordinate(made.window.topic, int(made.at[row]))
                yield self._finding(kind, source, coordinate(self._raw.topic, source), f"{own} {why}")

    def _disorder(self, ordered: Mask) -> Iterator[Finding]:
        """Records of one key and one raw partition, whose derived ones lie in another order than they do."""
        rows = np.flatnonzero(ordered)
        # Of what came again the first one. A stable sort keeps it ahead of the others.
        order = np.lexsort((self._derived.part[rows], self._derived.source[rows]))
        source, part = self._derived.source[rows][order], self._derived.part[rows][order]
        again = np.zeros(len(rows), np.bool_)
        again[1:] = (source[1:] == source[:-1]) & (part[1:] == part[:-1])
        rows = rows[order[~again]]
        at, source, key = self._derived.at[rows], self._derived.source[rows], self._found["key"][rows]
        order = np.lexsort((at, partition_of(source), key, partition_of(at)))
        at, source, key, part = at[order], source[order], key[order], self._derived.part[rows][order]
        same = (
            (key[1:] == key[:-1])
            & (partition_of(source[1:]) == partition_of(source[:-1]))
            & (partition_of(at[1:]) == partition_of(at[:-1]))
        )
        before = (source[1:] < source[:-1]) | ((source[1:] == source[:-1]) & (part[1:] < part[:-1]))
        for index in (np.flatnonzero(same & before) + 1).tolist():
            yield self._finding(
                "out of order",
                int(source[index]),
                coordinate(self._raw.topic, int(source[index])),
                f"in {self._derived.window.topic} after {coordinate(self._raw.topic, int(source[index - 1]))}, with the same key",
            )

    def _spread(self, ordered: Mask) -> Iterator[Finding]:
        """Records whose key lies in another derived partition than the first one of that key."""
        rows = np.flatnonzero(ordered & (self._found["key"] != NULL))
        rows = rows[np.argsort(self._derived.source[rows], kind="stable")]
        topic = self._derived.window.topic
        for index, first in astray(self._derived.at[rows], self._found["key"][rows]):
            source, own = int(self._derived.source[rows[index]]), coordinate(topic, int(self._derived.at[rows[index]]))
            why = f"{own} has the key of {coordinate(topic, first)}, which is in another partition"
            yield self._finding("out of order", source, coordinate(self._raw.topic, source), why)

    def _finding(self, kind: Kind, source: int, named: str, detail: str) -> Finding:
        partition = partition_of(source)
        place = f"{self._raw.topic}/{partition}" if partition in self.tallies else self._raw.topic
        return Finding(kind, self.hop, place, named, detail)

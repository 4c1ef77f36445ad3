"""The hop from a compacted topic to the dimension that is made of it: a version has the newest value of each key, up to the positions in its commit."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from contracts.definitions.dimension import DimensionContract
from services.audit.records.history import History, Row, Told
from services.audit.sources.dimension_table import Published
from services.audit.values.finding import Finding, Kind, Tally
from services.audit.values.place import code, coordinate

_GONE = "versions that are gone, not compared"
_OTHER = "versions that another contract or schema made, not compared"
_ANEW = "versions that were made of a topic that is there no more, not compared"
_REMOVED = "rows of records that compaction may have removed, not compared"
_CURE = "start dimensions anew, which reads the topic from its beginning and publishes what it says"


class Folded:
    """Compares versions with a topic's history. Pure: findings and a tally come out. Of each version and kind there is one finding, which names the first record
    of those that tell otherwise.
    """

    def __init__(self, contract: DimensionContract, made_by: str, topic: str, topic_id: str, history: History) -> None:
        self.contract, self._made_by = contract, made_by
        self._topic, self._topic_id, self._history = topic, topic_id, history
        self._hop = f"{topic} → {contract.name}"
        self._place = f"dimension {contract.name}"
        self._names = [column.name for column in contract.columns]
        self.tally = Tally(self._hop, self._place, history.records)

    def findings(self, version: int, said: Published | None, rows: pa.Table | None) -> Iterator[Finding]:
        """What is wrong with a version, whose commit says so; None where that or the rows are gone."""
        if said is None or rows is None:
            self.tally.notes[_GONE] += 1
        elif said.contract != self._made_by:
            self.tally.notes[_OTHER] += 1
        elif said.topic_id != self._topic_id or any(
            self._history.ends.get(each, 0) < at for each, at in said.offsets.items()
        ):
            self.tally.notes[_ANEW] += 1
        elif missing := [name for name in self._names if name not in rows.column_names]:
            yield self._finding("changed", None, f"version {version} lacks the column {missing[0]}")
        else:
            yield from self._compared(version, said.offsets, rows)

    def _compared(self, version: int, offsets: Mapping[int, int], rows: pa.Table) -> Iterator[Finding]:
        expected, others, is_open = self._fold(offsets)
        columns = [rows.column(name).to_pylist() for name in self._names]
        found: dict[Row, list[Row]] = {}
        for row in zip(*columns, strict=True):
            found.setdefault(self._history.key_of(row), []).append(row)
        self.tally.notes["versions compared"] += 1
        wrong: dict[Kind, list[tuple[int | None, str]]] = {"lost": [], "changed": [], "phantom": [], "doubled": []}
        for key, (at, told, record_key) in expected.items():
            of_key = found.get(key, [])
            if not of_key:
                wrong["lost"].append((at, "no row of this record"))
            elif len(of_key) > 1:
                wrong["doubled"].append((at, f"{len(of_key)} rows of its key"))
            elif differing := self._differing(of_key[0], told.row):
                if others.get(key, set()) - {record_key}:
                    # A record with another key told of the row since. It may have had an older one, which counted then.
                    self.tally.notes[_REMOVED] += 1
                else:
                    wrong["changed"].append((at, f"{differing} is not what this record says"))
        for key in found.keys() - expected.keys():
            if is_open or key in others:
                self.tally.notes[_REMOVED] += 1
            else:
                wrong["phantom"].append((None, "a row of which no record tells"))
        for kind, of_kind in wrong.items():
            if of_kind:
                yield self._several(kind, version, offsets, of_kind)

    def _fold(
        self, offsets: Mapping[int, int]
    ) -> tuple[dict[Row, tuple[int, Told, bytes]], dict[Row, set[bytes]], bool]:
        """By the dimension's key the record that counts, with its place; by which keys later records tell of a row; whether a row may be that of a record that
        is there no more, which a later record, perhaps gone itself, took away.
        """
        expected: dict[Row, tuple[int, Told, bytes]] = {}
        others: dict[Row, set[bytes]] = {}
        later = 0
        for partition, key, last, behind in self._history.before(offsets):
            later += len(behind)
            for each in behind:
                if each.row is not None:
                    others.setdefault(self._history.key_of(each.row), set()).add(key)
            if last is None or last.row is None:
                continue
            of, at = self._history.key_of(last.row), code(partition, last.offset)
            held = expected.get(of)
            if held is None or (held[1].timestamp_ms, held[0]) < (last.timestamp_ms, at):
                expected[of] = at, last, key
        is_open = later < sum(end - offsets.get(partition, 0) for partition, end in self._history.ends.items())
        takes_away = any(
            last is None and any(each.row is None for each in behind)
            for _, _, last, behind in self._history.before(offsets)
        )
        return expected, others, is_open or takes_away

    def _differing(self, row: Row, told: Row | None) -> str | None:
        """The first column with another value, None if all are equal; NaN equals NaN."""
        values = zip(self._names, row, told or (), strict=True)
        return next((name for name, one, other in values if not _same(one, other)), None)

    def _several(
        self, kind: Kind, version: int, offsets: Mapping[int, int], wrong: list[tuple[int | None, str]]
    ) -> Finding:
        # Not by its values: a key may be of a person.
        at, what = min(wrong, key=lambda each: -1 if each[0] is None else each[0])
        upto = ", ".join(f"{partition}/{offset}" for partition, offset in sorted(offsets.items()))
        rows = f"{len(wrong):,} rows" if len(wrong) > 1 else "a row"
        return self._finding(
            kind, at, f"version {version}: {what} up to offsets {upto}; the version has {rows} so: {_CURE}"
        )

    def _finding(self, kind: Kind, at: int | None, detail: str) -> Finding:
        named = self.contract.location if at is None else coordinate(self._topic, at)
        return Finding(kind, self._hop, self._place, named, f"{self.contract.name}: {detail}")


def _same(one: Any, other: Any) -> bool:
    return bool(one == other) or all(isinstance(each, float) and math.isnan(each) for each in (one, other))

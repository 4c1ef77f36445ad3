"""`Recomputation`: the looked-up fields of derived records, compared with the very dimension versions that they name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from contracts.settings import S3Settings
from services.audit.declared.lookups import Join, Recomputed
from services.audit.sources.dimension_table import newest_version, read_version
from services.audit.values.digest import Digests, digests
from services.audit.values.shape import Shape

RIGHT = -1
GONE = -2
"""A dimension version that the record names can't be read any more; what the others say is right."""
OLDER = -3
"""The schema version by which the record was written lacks some of the fields, or what they are looked up by; the others are right."""

NEVER = -4
"""The record names no version of a dimension, or one that there never was."""

OTHER = -5
"""A dimension version that the record names was made by another contract, and lacks a column, or has it as another type; what the others say is right."""

Verdicts = npt.NDArray[np.int16]
"""Of each record: RIGHT, GONE, OLDER, NEVER, OTHER, or the index in `Lookups.fields` of a field with another value."""


_WITHOUT_END = 253_402_300_800_000_000
"""The first instant of the year 10000, in microseconds."""
_BEFORE_ALL = -(2**62)

_MOST_HELD = 32
"""Dimension versions; records name the newest few, as a rule."""


class Recomputation:
    """Holds the dimension versions that it was asked about last."""

    def __init__(self, s3: S3Settings, recomputed: Recomputed, shape: Shape) -> None:
        self._s3, self._shape = s3, shape
        self._lookups, self._places = recomputed.lookups, recomputed.places
        self._held: dict[tuple[str, int], pa.Table | int] = {}
        self._newest: dict[str, int | None] = {}
        self._asked_again: set[str] = set()
        self.named: set[tuple[str, int]] = set()
        """Dimensions and versions that records named, and that there are."""

    def verdicts(
        self, columns: Mapping[str, pa.Array], fields: Mapping[str, Digests], absent: Sequence[frozenset[str]]
    ) -> Verdicts:
        """`fields` are the digests of `columns`, `absent` for each record the fields that its writer's schema does not have."""
        found = np.full(len(absent), RIGHT, np.int16)
        versions = columns[self._lookups.versions]
        _, named = np.unique(digests(versions), return_inverse=True)
        groups: dict[tuple[int, frozenset[str]], list[int]] = {}
        for row, key in enumerate(zip(named.tolist(), absent, strict=True)):
            groups.setdefault(key, []).append(row)
        for (_, lacked), rows in groups.items():
            named_by = dict(versions[rows[0]].as_py() or {})
            found[rows] = self._of_versions(named_by, columns, fields, np.array(rows), lacked)
        return found

    def _of_versions(
        self,
        versions: Mapping[str, int],
        columns: Mapping[str, pa.Array],
        fields: Mapping[str, Digests],
        rows: npt.NDArray[np.int64],
        absent: frozenset[str],
    ) -> Verdicts:
        names = self._lookups.fields
        found = np.full(len(rows), OLDER if absent & set(names) else RIGHT, np.int16)
        unmatched = np.zeros(len(rows), np.int64)
        untold, told_by = set[str](), RIGHT
        for number, join in enumerate(self._lookups.joins):
            if join.fields and join.fields.keys() <= absent:
                continue  # it was not made yet
            if not absent.isdisjoint(join.needs):
                untold.add(join.name)
                found[found == RIGHT] = OLDER
                continue
            table = self._dimension(join, versions.get(join.dimension))
            if isinstance(table, int):
                if table == NEVER:
                    return np.full(len(rows), NEVER, np.int16)
                untold.add(join.name)
                told_by = table
                continue
            looked_up = [columns[field].take(pa.array(rows)) for field in join.by_fields]
            place = self._places[join.dimension]
            key = [table.column(name) for name in place.key]
            if place.interval is None or join.as_of is None:
                places = places_of(looked_up, key)
            else:
                instants = columns[join.as_of].take(pa.array(rows))
                places = places_at(looked_up, key, instants, *(table.column(name) for name in place.interval))
            unmatched |= places.is_null().to_numpy(zero_copy_only=False).astype(np.int64) << number
            for field in join.fields.keys() - absent:
                column = join.fields[field]
                expected = self._shape.digest(field, table.column(column).combine_chunks().take(places))
                found[expected != fields[field][rows]] = names.index(field)
        if told_by != RIGHT:
            found[found < 0] = told_by
        if self._lookups.unmatched not in absent:
            said = self._without(untold, columns[self._lookups.unmatched].take(pa.array(rows)))
            found[self._unmatched(unmatched) != said] = len(names) - 1
        return found

    def _without(self, untold: AbstractSet[str], unmatched: pa.Array) -> Digests:
        """The digests of lists of joins, without those of which nobody can tell whether they found something."""
        if not untold:
            return digests(unmatched)
        lists = [[name for name in each or () if name not in untold] for each in unmatched.to_pylist()]
        return digests(pa.array(lists, pa.list_(pa.string())))

    def _unmatched(self, bits: npt.NDArray[np.int64]) -> Digests:
        """The digests of the lists of joins that found nothing; bit n stands for join n."""
        values, inverse = np.unique(bits, return_inverse=True)
        joins = self._lookups.joins
        lists = [[join.name for number, join in enumerate(joins) if value >> number & 1] for value in values.tolist()]
        return digests(pa.array(lists, pa.list_(pa.string())))[inverse]

    def _dimension(self, join: Join, version: int | None) -> Any:
        location = self._places[join.dimension].location
        if version is None or version < 0:
            return NEVER
        newest = self._newest_for(location, version)
        if newest is None:
            return GONE  # with the whole table
        if version > newest:
            return NEVER
        key = (join.dimension, version)
        self.named.add(key)
        if key not in self._held:
            if len(self._held) >= _MOST_HELD:
                del self._held[next(iter(self._held))]
            found = read_version(self._s3, location, version)
            self._held[key] = GONE if found is None else found
        held = self._held[key]
        return held if isinstance(held, int) or self._fits(join, held) else OTHER

    def _fits(self, join: Join, table: pa.Table) -> bool:
        """Whether a version has the columns that are asked for, of the types that can be compared, and one row for each key, if rows hold at any time."""
        place, there = self._places[join.dimension], table.schema
        interval = () if join.as_of is None or place.interval is None else place.interval
        if any(each not in there.names for each in (*place.key, *interval, *join.fields.values())):
            return False
        kinds = [there.field(each).type for each in interval]
        if not all(pa.types.is_timestamp(kind) or pa.types.is_date32(kind) for kind in kinds):
            return False
        asked = {**dict(zip(join.by_fields, place.key, strict=True)), **join.fields}
        if not all(_alike(there.field(column).type, self._shape.columns.get(name)) for name, column in asked.items()):
            return False
        return bool(interval) or table.group_by(list(place.key)).aggregate([]).num_rows == table.num_rows

    def _newest_for(self, location: str, version: int) -> int | None:
        """The newest version; asked for again for the sake of a higher one, once: records may name any."""
        newest = self._newest[location] if location in self._newest else newest_version(self._s3, location)
        if newest is not None and version > newest and location not in self._asked_again:
            self._asked_again.add(location)
            newest = newest_version(self._s3, location)
        self._newest[location] = newest
        return newest


def _alike(one: pa.DataType, other: pa.DataType | None) -> bool:
    """Whether values of the two can be the same: of whole numbers each size."""
    return one == other or (other is not None and pa.types.is_integer(one) and pa.types.is_integer(other))


def places_of(looked_up: Sequence[pa.Array], key: Sequence[pa.Array]) -> pa.Array:
    """For each record the number of the row with its key, null if there is none; one array for each column of the key."""
    return pc.index_in(*_as_one(looked_up, key))


def places_at(
    looked_up: Sequence[pa.Array], key: Sequence[pa.Array], instants: pa.Array, begins: pa.Array, ends: pa.Array
) -> pa.Array:
    """The same where a row holds from an instant on, and before another one if it is not null: of those with the record's key the one that holds at
    the record's instant. `begins` and `ends` are instants, or days in UTC.
    """
    values, known = _as_one(looked_up, key)
    if not len(known):
        return pa.nulls(len(instants), pa.int64())
    keys = pc.unique(known)
    # Rows in the order of key and beginning, which are one number: the first that begins later is behind the one that is looked for.
    since, until = (_microseconds(each, _WITHOUT_END) for each in (begins, ends))
    of_rows = pc.index_in(known, keys).to_numpy()
    at = _microseconds(instants, _BEFORE_ALL)
    starts = np.unique(since)
    order = np.lexsort((since, of_rows))
    ranks = of_rows[order].astype(np.int64) * (len(starts) + 1) + np.searchsorted(starts, since[order]) + 1
    of_records = pc.fill_null(pc.index_in(values, keys), -1).to_numpy(zero_copy_only=False).astype(np.int64)
    asked = of_records * (len(starts) + 1) + np.searchsorted(starts, at, side="right")
    last = np.searchsorted(ranks, asked, side="right") - 1
    rows = order[np.maximum(last, 0)]
    holds = (last >= 0) & (of_records >= 0) & (of_rows[rows] == of_records) & (since[rows] <= at) & (at < until[rows])
    return pa.array(rows, pa.int64(), mask=~holds)


def _microseconds(instants: pa.Array, of_null: int) -> npt.NDArray[np.int64]:
    """Since 1970, of instants or of days, which begin at midnight in UTC."""
    numbers = instants.cast(pa.timestamp("us")).cast(pa.int64())
    return np.asarray(pc.fill_null(numbers, of_null), np.int64)


def _as_one(looked_up: Sequence[pa.Array], key: Sequence[pa.Array]) -> tuple[pa.Array, pa.Array]:
    """Records' keys and rows' keys as one column each. Of several columns the first two become one of numbers, and so on: each pair of values
    that the table has is a number of its own.
    """
    (values, *others), (known, *columns) = map(_as_in_spark, looked_up), map(_as_in_spark, key)
    for value, column in zip(others, columns, strict=True):
        left, right = pc.unique(known), pc.unique(column)
        values, known = (
            pc.add(pc.multiply(pc.index_in(one, left).cast(pa.int64()), len(right)), pc.index_in(other, right))
            for one, other in ((values, value), (known, column))
        )
    return values, known


def _as_in_spark(column: pa.Array) -> pa.Array:
    """There -0.0 finds 0.0, and each NaN any other."""
    if not pa.types.is_floating(column.type):
        return column
    return pc.if_else(pc.is_nan(column), float("nan"), pc.add(column, 0.0))

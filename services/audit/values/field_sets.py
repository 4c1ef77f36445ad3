"""`FieldSets`: which fields of a record are compared, by the version of the schema that it was written by."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet

from contracts.records.evolution import resolve

FieldSets = tuple[tuple[str, ...], ...]
"""All of them, then, for each earlier version that lacks some, those that it has."""

UNKNOWN = -1
"""In place of the number of a set: the version is none of the contract's, and lacks fields that those have."""


def field_sets(fields: Iterable[str], schemas: Sequence[str]) -> FieldSets:
    """`schemas` are the versions of the record's, as JSON text, the current one last."""
    names = sorted(fields)
    absent = (resolve(schemas[-1], each).absent for each in reversed(schemas))
    return tuple(dict.fromkeys(tuple(name for name in names if name not in lacking) for lacking in absent))


def set_for(sets: FieldSets, absent: AbstractSet[str]) -> int:
    """The number of the first set with none of these fields; UNKNOWN if there is none."""
    return next((number for number, names in enumerate(sets) if absent.isdisjoint(names)), UNKNOWN)

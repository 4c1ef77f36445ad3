"""Places of records as whole numbers, thousands at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from contracts.records.coordinates import Coordinate, pattern

Codes = npt.NDArray[np.int64]
"""partition * 2**44 + offset: sorted as partition and offset are. -1: nowhere in the topic."""

Parts = npt.NDArray[np.int64]
"""Which part of a raw record each is, from 0 on; WHOLE where one record becomes one."""

WHOLE = -1
_OFFSET_BITS = 44
NOWHERE = -1
ENDLESS = 1 << _OFFSET_BITS
"""Above every offset."""


def code(partition: int, offset: int) -> int:
    """The code of one place."""
    return partition << _OFFSET_BITS | offset


def codes(partitions: npt.NDArray[Any], offsets: npt.NDArray[Any]) -> Codes:
    """The codes of many."""
    return partitions.astype(np.int64) << _OFFSET_BITS | offsets.astype(np.int64)


_Place = TypeVar("_Place", int, Codes)


def partition_of(places: _Place) -> _Place:
    """Of one place or many; -1 for nowhere."""
    return places >> _OFFSET_BITS


def offset_of(places: _Place) -> _Place:
    """The offsets in their partitions."""
    return places & ENDLESS - 1


def astray(at: Codes, keys: npt.NDArray[Any]) -> Iterator[tuple[int, int]]:
    """The index of each place that lies in another partition than the first place with its key, and that first one: nothing orders the two."""
    _, firsts, of = np.unique(keys, return_index=True, return_inverse=True)
    first = at[firsts][of]
    for index in np.flatnonzero(partition_of(at) != partition_of(first)).tolist():
        yield index, int(first[index])


def coordinate(topic: str, code: int, part: int = WHOLE) -> str:
    """The coordinate of the record at a place, or of a part of it, as text."""
    return str(Coordinate(topic, partition_of(code), offset_of(code), None if part == WHOLE else part))


def named_in_vain(topic: str, code: int, own: str) -> tuple[str, str]:
    """Of a record, at the coordinate `own`, that names a place in `topic` where nothing is: which coordinate to tell of, and what is wrong."""
    if code < 0:
        return own, f"names no record of {topic}"
    return coordinate(topic, code), f"{own} names it, but there is no such record"


def parsed(topic: str, coordinates: pa.Array) -> Codes:
    """The codes of `topic`'s coordinates among texts (string or binary); NOWHERE for all others."""
    (partitions, offsets), nowhere = _numbers(topic, coordinates, parts=False)
    return np.where(nowhere, NOWHERE, codes(partitions, offsets))


def parsed_parts(topic: str, coordinates: pa.Array, *, parts: bool) -> tuple[Codes, Parts]:
    """`parsed` of coordinates that all have `parts`, or none, and these; WHOLE where there is none."""
    if not parts:
        return parsed(topic, coordinates), np.full(len(coordinates), WHOLE)
    (partitions, offsets, numbers), nowhere = _numbers(topic, coordinates, parts=True)
    return np.where(nowhere, NOWHERE, codes(partitions, offsets)), np.where(nowhere, WHOLE, numbers)


def places(topic: str, coordinates: Iterable[str]) -> Codes:
    """The codes of texts, as `parsed` has them."""
    return parsed(topic, pa.array(list(coordinates), pa.string()))


def _numbers(topic: str, coordinates: pa.Array, *, parts: bool) -> tuple[list[Codes], npt.NDArray[np.bool_]]:
    found = pc.extract_regex(coordinates, pattern(topic, parts=parts))
    # Flattened, for the children of a null struct are not null themselves.
    values = [pc.fill_null(child.cast(pa.string()).cast(pa.int64()), 0).to_numpy() for child in found.flatten()]
    return values, found.is_null().to_numpy(zero_copy_only=False)


def concatenated(parts: Sequence[npt.NDArray[Any]], kind: Any) -> npt.NDArray[Any]:
    """One array of all; empty of no parts."""
    return np.concatenate(parts) if parts else np.zeros(0, kind)


def together(parts: Sequence[Any], kinds: Mapping[str, Any]) -> dict[str, npt.NDArray[Any]]:
    """By name the arrays that all parts have under it, each as one, in this order; `kinds` are their types."""
    return {name: concatenated([getattr(part, name) for part in parts], kind) for name, kind in kinds.items()}

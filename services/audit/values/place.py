"""Places of records as whole numbers, thousands at a time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from contracts.records.coordinates import pattern

Codes = npt.NDArray[np.int64]
"""partition * 2**44 + offset: sorted as partition and offset are. -1: nowhere in the topic."""

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


def coordinate(topic: str, code: int) -> str:
    """topic/partition/offset."""
    return f"{topic}/{partition_of(code)}/{offset_of(code)}"


def parsed(topic: str, coordinates: pa.Array) -> Codes:
    """The codes of `topic`'s coordinates among texts (string or binary); NOWHERE for all others."""
    found = pc.extract_regex(coordinates, pattern(topic))
    # Flattened, for the children of a null struct are not null themselves.
    partitions, offsets = (
        pc.fill_null(child.cast(pa.string()).cast(pa.int64()), 0).to_numpy() for child in found.flatten()
    )
    nowhere = found.is_null().to_numpy(zero_copy_only=False)
    return np.where(nowhere, NOWHERE, codes(partitions, offsets))


def places(topic: str, coordinates: Iterable[str]) -> Codes:
    """The codes of texts, as `parsed` has them."""
    return parsed(topic, pa.array(list(coordinates), pa.string()))


def concatenated(parts: Sequence[npt.NDArray[Any]], kind: Any) -> npt.NDArray[Any]:
    """One array of all; empty of no parts."""
    return np.concatenate(parts) if parts else np.zeros(0, kind)

"""64-bit digests of Arrow columns, computed for all rows at once.

Equal values have equal digests whatever their width: int and long, float and double, timestamps of any unit. Two
different values meet with a probability of about 2^-64. Not cryptographic: it finds mistakes, not forgers.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Digests = npt.NDArray[np.uint64]

NULL = np.uint64(0)
"""The digest of null; another value has it only by chance."""

_WORD_BYTES = 8
_KEPT = np.array([(1 << (8 * length)) - 1 for length in range(_WORD_BYTES + 1)], np.uint64)
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def mix(words: Digests) -> Digests:
    """The finalizer of splitmix64 (Steele, Lea, Flood 2014): each bit in changes each bit out with even odds."""
    words = words + _GOLDEN
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def identity(source: npt.NDArray[np.int64], part: npt.NDArray[np.int64]) -> Digests:
    """One number for each part of each raw record."""
    return mix(mix(source.astype(np.uint64)) + (part + 1).astype(np.uint64))


def salt(name: str) -> Any:
    """What sets a field's digests apart from those of other fields."""
    return mix(np.array([zlib.crc32(name.encode())], np.uint64))[0]


def digests(column: pa.Array) -> Digests:
    """One digest for each row. Raises TypeError for an Arrow type that no Avro type is read as."""
    found = _values(column)
    if column.null_count:
        found[column.is_null().to_numpy(zero_copy_only=False)] = NULL
    return found


def _values(column: pa.Array) -> Digests:
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _texts(column, np.dtype(np.int32))
    if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        return _texts(column, np.dtype(np.int64))
    if pa.types.is_map(kind) or pa.types.is_list(kind):
        return _collections(column)
    if pa.types.is_struct(kind):
        total = np.zeros(len(column), np.uint64)
        for child, field in zip(column.flatten(), kind, strict=True):
            total += mix(digests(child) ^ salt(field.name))
        return mix(total)
    return mix(_words(column))


def _texts(column: pa.Array, offset_type: np.dtype[Any]) -> Digests:
    """Eight bytes of every text that is long enough at a time."""
    _, offsets, data = column.buffers()
    if data is None or len(column) == 0:
        return mix(np.zeros(len(column), np.uint64))
    bounds = np.frombuffer(offsets, offset_type, len(column) + 1, column.offset * offset_type.itemsize).astype(np.int64)
    starts, lengths = bounds[:-1], np.diff(bounds)
    content = np.frombuffer(data, np.uint8)[: bounds[-1]]
    padded = np.concatenate([content, np.zeros(_WORD_BYTES, np.uint8)])
    # A word begins at every byte.
    words = np.lib.stride_tricks.as_strided(
        padded[:_WORD_BYTES].view("<u8"), shape=(len(padded) - _WORD_BYTES + 1,), strides=(1,), writeable=False
    )
    found = mix(lengths.astype(np.uint64))
    rows = np.flatnonzero(lengths > 0)
    done = 0
    while len(rows):
        left = lengths[rows] - done
        found[rows] = mix(found[rows] ^ (words[starts[rows] + done] & _KEPT[np.minimum(left, _WORD_BYTES)]))
        done += _WORD_BYTES
        rows = rows[left > _WORD_BYTES]
    return found


def _collections(column: pa.Array) -> Digests:
    """Lists count their order, maps don't."""
    bounds = column.offsets.to_numpy().astype(np.int64)
    first, last = bounds[0], bounds[-1]
    lengths = np.diff(bounds)
    if pa.types.is_map(column.type):
        keys, items = column.keys[first:last], column.items[first:last]
        elements = mix(digests(keys) ^ mix(digests(items)))
    else:
        places = np.arange(last - first, dtype=np.int64) - np.repeat(bounds[:-1] - first, lengths)
        elements = mix(digests(column.values[first:last]) ^ mix(places.astype(np.uint64)))
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(elements, dtype=np.uint64)])
    return mix(sums[bounds[1:] - first] - sums[bounds[:-1] - first] + lengths.astype(np.uint64))


def _words(column: pa.Array) -> Digests:
    """Numbers as 64 bits each."""
    kind = column.type
    if pa.types.is_decimal128(kind):
        # Unscaled; the scale is the schema's.
        halves = np.frombuffer(column.buffers()[1], np.uint64, 2 * len(column), column.offset * 16).reshape(-1, 2)
        return halves[:, 0] ^ mix(halves[:, 1].copy())
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.timestamp("us", kind.tz), safe=False).cast(pa.int64())
    elif pa.types.is_date32(kind):
        column = column.cast(pa.int32()).cast(pa.int64())
    elif pa.types.is_floating(kind):
        column = column.cast(pa.float64())
    elif pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        column = column.cast(pa.int64())
    else:
        raise TypeError(f"no digest for a column of {kind}")
    numbers: npt.NDArray[Any] = (pc.fill_null(column, 0) if column.null_count else column).to_numpy()
    if numbers.dtype == np.float64:
        with np.errstate(invalid="ignore"):  # a NaN that signals
            numbers = numbers + 0.0  # -0.0 equals 0.0, and has other bits
        numbers[np.isnan(numbers)] = np.nan  # one of many
    return numbers.view(np.uint64).copy()

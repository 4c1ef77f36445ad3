"""Batches of records, read also where a header's name is not UTF-8: `ReadableRecords`.

A name is bytes on a topic. aiokafka (0.14.0) raises on the first that is no UTF-8, for all records that were fetched with it, at each
new try: one such record would stop a partition for good. Java's clients, and so Spark, put U+FFFD in place of what they can't read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from aiokafka.consumer import fetcher
from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import _DefaultRecordBatchPy
from aiokafka.record.memory_records import _MemoryRecordsPy


def read_any_header_name() -> None:
    """From now on, for every consumer of this process."""
    fetcher.MemoryRecords = ReadableRecords


class ReadableRecords(_MemoryRecordsPy):  # type: ignore[misc]  # aiokafka carries no types
    """In place of aiokafka's `MemoryRecords`."""

    def next_batch(self) -> Any:
        """The next batch, None without one; its records are read by aiokafka's own code, in C, unless that fails."""
        whole = self._next_slice
        batch = super().next_batch()
        return batch if batch is None else _Batch(batch, whole)


class _Batch:
    def __init__(self, batch: Any, whole: Any) -> None:
        self._batch = batch
        self._whole = whole

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batch, name)

    def __next__(self) -> Any:
        return next(self._batch)

    def __iter__(self) -> Iterator[Any]:
        try:
            yield from self._batch
        except (UnicodeDecodeError, CorruptRecordException):
            # From its first record on: the fetcher drops those which it has had.
            yield from _read_again(self._whole)


def _read_again(whole: Any) -> Any:
    """Raises CorruptRecordException if there is more wrong with the batch than a name."""
    batch = iter(_DefaultRecordBatchPy(whole))  # which decompresses
    batch._buffer = _Lenient(batch._buffer)
    return batch


class _Lenient(bytearray):
    """Decodes as Java does; so do its slices."""

    def __getitem__(self, at: Any) -> Any:
        found = super().__getitem__(at)
        return _Lenient(found) if isinstance(at, slice) else found

    def decode(self, encoding: str = "utf-8", errors: str = "replace") -> str:
        return super().decode(encoding, errors)

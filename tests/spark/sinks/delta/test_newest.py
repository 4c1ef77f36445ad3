"""Which rows are left of those that a table has and those of a batch."""

from __future__ import annotations

import pyarrow as pa

from spark.sinks.delta.newest_rows import newest


def rows(*of: tuple[bytes | None, int | None, int | None]) -> pa.Table:
    names, kinds = ("record_key", "record_partition", "record_offset"), (pa.binary(), pa.int32(), pa.int64())
    columns = zip(*of, strict=True)
    return pa.table([pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)], list(names))


def test_of_each_key_of_a_partition_the_row_with_the_highest_offset_is_left() -> None:
    found = newest(rows((b"a", 0, 5), (b"b", 0, 2), (b"a", 1, 1), (b"a", 0, 3), (b"", 0, 4)))
    assert found.to_pylist() == rows((b"b", 0, 2), (b"", 0, 4), (b"a", 0, 5), (b"a", 1, 1)).to_pylist()


def test_a_row_that_another_program_has_written_without_key_or_place_is_left_out() -> None:
    found = newest(rows((b"a", 0, 5), (None, 0, 9), (b"a", None, 9), (b"b", 0, None), (None, None, None)))
    assert found.to_pylist() == rows((b"a", 0, 5)).to_pylist()

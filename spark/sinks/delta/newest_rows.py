"""The newest record of each key: a batch and the rows that a lake table has, written anew as one file that is not yet part of the table.

Runs in one of Spark's Python workers, as `spark.sinks.delta.table_files` does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark.runtime.workers.arrow import mask, numbers
from spark.sinks.delta.merged_files import LiveFile, row_groups, with_columns
from spark.sinks.delta.table_files import FilePlan, OpenFile, put_file, result, rows_of

_ROWS_AT_ONCE = 100_000
_BYTES_AT_ONCE = 32 << 20
"""What is gathered before all but the newest record of each key is let go; also rows of a row group, which is held in memory while it is written."""

_PLACE = ("record_key", "record_partition", "record_offset")

_HAS_ROW = "__has_row"
"""Whether the record is a row: one without value, or that can't be decoded, takes away that of its key."""


@dataclass(frozen=True, slots=True)
class NewestPlan:
    """`files` is what the task needs to know about the table's files, `present` are those that it has, `columns` are its columns."""

    files: FilePlan
    present: Sequence[LiveFile]
    columns: pa.Schema


def write_newest(plan: NewestPlan, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The columns of `table_files.write_files` and `key` in, of all records of a batch, in any order; one row of its `RESULT` out.

    The file has all rows of the table then. There is none if no row is left, or if the batch says nothing of any key, which is told as `same`.
    """
    task = _Task(plan)
    for batch in batches:
        task.take(batch)
    yield task.close()


def newest(rows: pa.Table) -> pa.Table:
    """Of each key of a partition the row with the highest offset, by partition and offset. A row that lacks one of these is of no record: another program
    has written it, and it is left out.
    """
    for name in _PLACE:
        if rows.column(name).null_count:
            rows = rows.filter(pc.is_valid(rows.column(name)))
    partition, offset = (rows.column(name).to_numpy() for name in ("record_partition", "record_offset"))
    keys = rows.column("record_key").combine_chunks().dictionary_encode()
    of = partition.astype(np.int64) * len(keys.dictionary) + keys.indices.to_numpy()
    order = np.lexsort((offset, of))
    last = np.append(np.diff(of[order]) != 0, True)[: len(order)]
    kept = order[last]
    return rows.take(numbers(kept[np.lexsort((offset[kept], partition[kept]))]))


class _Task:
    """What it holds is bounded by the number of keys, whatever the number of records."""

    def __init__(self, plan: NewestPlan) -> None:
        self._plan = plan
        self._columns = [*plan.columns, pa.field(_HAS_ROW, pa.bool_())]
        self._bad = 0
        self._held: list[pa.Table] = []
        self._gathered = self._gathered_bytes = 0

    def take(self, batch: pa.RecordBatch) -> None:
        good = pc.is_null(batch.column("reason"))
        self._bad += batch.num_rows - good.true_count
        rows, _ = rows_of(batch, self._plan.files)
        rows = rows.append_column("record_key", batch.column("key"))
        rows = rows.append_column(_HAS_ROW, pc.and_(good, batch.column("has_value")))
        # What has no key is a dead letter.
        keyed = rows.filter(pc.is_valid(batch.column("key")))
        if keyed.num_rows:
            self._gather(with_columns(pa.Table.from_batches([keyed]), self._columns))

    def close(self) -> pa.RecordBatch:
        if not self._held:
            return result([], self._bad, same=True)
        plan = self._plan.files
        for rows in row_groups(plan.s3, plan.prefix, self._plan.present, list(self._plan.columns)):
            self._gather(rows.append_column(_HAS_ROW, mask(np.ones(rows.num_rows, np.bool_))))
        self._let_go()
        (held,) = self._held
        held = held.filter(held.column(_HAS_ROW)).drop_columns([_HAS_ROW])
        if not held.num_rows:
            return result([], self._bad)
        written = OpenFile({}, held.schema)
        for start in range(0, held.num_rows, _ROWS_AT_ONCE):
            written.write(held.slice(start, _ROWS_AT_ONCE))
        return result([put_file(plan.s3, plan.prefix, written, plan.statistics)], self._bad)

    def _gather(self, rows: pa.Table) -> None:
        self._held.append(rows)
        self._gathered += rows.num_rows
        self._gathered_bytes += rows.nbytes
        if self._gathered >= _ROWS_AT_ONCE or self._gathered_bytes >= _BYTES_AT_ONCE:
            self._let_go()

    def _let_go(self) -> None:
        self._held = [newest(pa.concat_tables(self._held))]
        self._gathered = self._gathered_bytes = 0

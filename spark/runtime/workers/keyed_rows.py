"""The rows of `transformWithState` on their way through a Python worker, in batches of many keys: `KeyedRows`.

Spark takes the cells of a row one by one out of Arrow, sends a batch for each key, and all that timers make in one task as a single one: after a
pause of the events that may be more than a worker's memory holds.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, BinaryIO

import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.pandas.serializers import ArrowStreamUDFSerializer, TransformWithStateInPySparkRowSerializer
from pyspark.sql.streaming.stateful_processor_util import TransformWithStateInPandasFuncMode as Mode

_BYTES = 8 << 20
"""Of texts and binaries in one batch, or one row that has more."""


class KeyedRows(TransformWithStateInPySparkRowSerializer):
    """In the place of Spark's own, by which a worker reads and writes."""

    def load_stream(self, stream: BinaryIO) -> Iterator[tuple[Mode, Any, Any]]:
        """Called by Spark: the rows of each key, the call of the timers, and the end."""
        batches = super(ArrowStreamUDFSerializer, self).load_stream(stream)  # type: ignore[no-untyped-call]
        # Known by now: the worker reads it before the rows.
        assert self.key_offsets is not None
        for key, rows in rows_by_key(batches, self.key_offsets):
            yield Mode.PROCESS_DATA, key, rows
        yield Mode.PROCESS_TIMER, None, None
        yield Mode.COMPLETE, None, None

    def dump_stream(self, iterator: Iterator[Any], stream: BinaryIO) -> None:
        """Called by Spark with what was made of each key, of the timers, and of the end: a list of one, the rows and their type."""
        ((first, kind),) = next(iterator)
        made = itertools.chain([first], (rows for ((rows, _),) in iterator))
        batches = batched(made, kind, self.arrow_max_records_per_batch)
        ArrowStreamUDFSerializer.dump_stream(self, ((batch, kind) for batch in batches), stream)  # type: ignore[no-untyped-call]


def rows_by_key(
    batches: Iterable[pa.RecordBatch], keys: Sequence[int]
) -> Iterator[tuple[tuple[Any, ...], Iterator[Row]]]:
    """The rows of each key, whose columns are `keys`. Those of one key follow each other, and are to be taken before the next key."""
    rows = itertools.chain.from_iterable(map(_rows, batches))
    return itertools.groupby(rows, key=lambda row: tuple(row[number] for number in keys))


def batched(made: Iterable[Iterable[Row]], kind: pa.StructType, most_rows: int) -> Iterator[pa.RecordBatch]:
    """What was made of each key in turn, as batches of so many rows at most; one without rows if there are none."""
    schema, rows, size, is_empty = pa.schema(list(kind)), list[dict[str, Any]](), 0, True
    for row in itertools.chain.from_iterable(made):
        rows.append(row.asDict(True))
        size += sum(len(value) for value in row if isinstance(value, bytes | str))
        if len(rows) >= most_rows or size >= _BYTES:
            yield pa.RecordBatch.from_pylist(rows, schema=schema)
            rows, size, is_empty = [], 0, False
    if rows or is_empty:
        yield pa.RecordBatch.from_pylist(rows, schema=schema)


def _rows(batch: pa.RecordBatch) -> Iterator[Row]:
    of = Row(*batch.schema.names)
    return itertools.starmap(of, zip(*[column.to_pylist() for column in batch.columns], strict=True))

"""The rows of a task as its Python worker gets them, to their end: `map_whole`.

Spark hands a function in a worker an iterator that ends in the same way whether the last row came or whatever feeds it failed: an
error upstream, a task that was cancelled, a JVM that died. Arrow's reader takes the end of a socket for the end of its stream. What
tells them apart is what Spark sends behind the last row: the stream's end mark and, in PySpark's own protocol, the end of the
task's input (`END_OF_STREAM`, PythonRunner.scala). Had the stream no end mark, Arrow would read these bytes as its next message, and
fail. So where bytes follow the rows, all of them came.

`spark.runtime.workers.python_daemon` runs each task by `main`, which notes from where it reads. In a worker that was started in another way no
row is handed on.
"""

from __future__ import annotations

import functools
import io
from collections.abc import Callable, Iterator
from typing import BinaryIO

import pyarrow as pa
from pyspark.daemon import worker_main
from pyspark.sql import DataFrame

_input: BinaryIO | None = None

OverBatches = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class EndedEarly(Exception):
    """Not all rows of the task came: nothing may be said of those that are missing."""


def map_whole(rows: DataFrame, function: OverBatches, schema: str) -> DataFrame:
    """`rows.mapInArrow`, where the iterator that `function` gets raises EndedEarly at its end, unless all rows came."""
    return rows.mapInArrow(functools.partial(_over_whole, function), schema)


def main(infile: BinaryIO, outfile: BinaryIO) -> None:
    """PySpark's `worker_main`, for one task."""
    global _input
    _input = infile
    worker_main(infile, outfile)


def whole(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """`batches`, and at their end EndedEarly if something is missing. Raises TypeError where that can't be told."""
    if not isinstance(_input, io.BufferedReader):
        raise TypeError(
            f"a Python worker that spark.runtime.workers.python_daemon has not started, or that reads from {_input}"
        )
    yield from batches
    if not _input.peek(1):
        raise EndedEarly("the rows of this task ended before all had come; the cause is told by Spark")


def _over_whole(function: OverBatches, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return function(whole(batches))

"""A batch's query, planned once and run on batch after batch: `Prepared`; and, for comparison, planned each time: `Unprepared`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame

from spark.runtime.internals.java import java_class

_STEP = "org.apache.spark.rdd.MapPartitionsRDD"


class Prepared:
    """A query over the frames of `foreachBatch`, which differ in nothing but their records; its tasks give one text each.

    Spark analyses, optimises, plans and generates code for what it is given, anew for each batch, which takes a small one more time
    than its tasks do. What comes of it is a function from each partition's rows to rows: here it is made once, and put over
    the partitions of each further batch. So nothing that the query is made of may change: no range of offsets, no moment,
    no setting. And it can't shuffle.
    """

    def __init__(self, query: Callable[[DataFrame], DataFrame]) -> None:
        self._query = query
        self._first: tuple[DataFrame, Any] | None = None
        self._steps: list[Callable[[Any], Any]] = []

    def collect(self, batch: DataFrame) -> list[str]:
        """What the tasks have to say, in no particular order."""
        if self._first is None:
            rows = self._query(batch)._jdf.queryExecution().executedPlan().execute()
            self._first = (batch, rows)
        else:
            self._steps = self._steps or _steps(*self._first)
            rows = _records(batch)
            for step in self._steps:
                rows = step(rows)
        return [str(row.getUTF8String(0)) for row in rows.collect()]


class Unprepared:
    """The same by Spark's public ways: any query, planned for each batch."""

    def __init__(self, query: Callable[[DataFrame], DataFrame]) -> None:
        self._query = query

    def collect(self, batch: DataFrame) -> list[str]:
        """What the tasks have to say, in no particular order."""
        # Not `collect`: a result that is cut short would be taken for the whole.
        return [str(each) for each in self._query(batch).toArrow().column(0).to_pylist()]


def _steps(batch: DataFrame, rows: Any) -> list[Callable[[Any], Any]]:
    """What makes `rows` of the batch's records, first step first: each an RDD of the one before."""
    jvm: Any = batch.sparkSession.sparkContext._jvm
    make = java_class(jvm, _STEP)
    any_class = java_class(jvm, "scala.reflect.ClassTag").Any()
    records = _records(batch)
    steps: list[Callable[[Any], Any]] = []
    while rows.id() != records.id():
        if rows.getClass().getName() != _STEP:
            raise TypeError(f"a query of more than steps over each partition's rows: {rows}")
        function = rows.getClass().getDeclaredField("f")
        function.setAccessible(True)
        steps.insert(0, _step(make, function.get(rows), any_class))
        rows = rows.prev()
    return steps


def _step(make: Any, function: Any, any_class: Any) -> Callable[[Any], Any]:
    return lambda before: make(before, function, False, False, False, any_class, any_class)


def _records(batch: DataFrame) -> Any:
    """The RDD that a frame of `foreachBatch` is made of."""
    return batch._jdf.queryExecution().analyzed().rdd()

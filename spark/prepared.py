"""A batch's plan, made once and run on batch after batch: `Prepared`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame


class Prepared:
    """A query over the frames of `foreachBatch`, which differ in nothing but their records.

    Spark analyses, optimises and plans what it is given anew for each batch, which takes a small one more time than its
    tasks do. Here only the scan at the plan's bottom is another one each time. So nothing that the query is made of may
    change: no range of offsets, no moment, no setting.
    """

    def __init__(self, query: Callable[[DataFrame], DataFrame]) -> None:
        self._query = query
        self._scan: _Scan | None = None
        self._above: list[_Node] = []

    def collect(self, batch: DataFrame) -> list[Any]:
        """The rows of the query's result, as Spark's own `Row` in the JVM."""
        if self._scan is None:
            plan = self._query(batch)._jdf.queryExecution().executedPlan()
            self._take_apart(plan, batch.sparkSession.sparkContext._jvm)
        else:
            plan = self._scan.of(batch)
            for node in self._above:
                plan = node.over(plan)
        return list(plan.executeCollectPublic())

    def _take_apart(self, plan: Any, jvm: Any) -> None:
        """From the top down to the batch's scan, which is joined from the left alone."""
        while (children := plan.children()).nonEmpty():
            self._above.insert(0, _Node(plan, children.tail()))
            plan = children.head()
        self._scan = _Scan(jvm.org.apache.spark.sql.execution.RDDScanExec, plan)


@dataclass(frozen=True, slots=True)
class _Node:
    """A node of a plan, and its children but the first. Each call into the JVM counts here."""

    node: Any
    others: Any

    def over(self, plan: Any) -> Any:
        return self.node.withNewChildren(self.others.prepended(plan))


@dataclass(frozen=True, slots=True)
class _Scan:
    """What scans a batch's records."""

    make: Any
    first: Any

    def of(self, batch: DataFrame) -> Any:
        found = batch._jdf.queryExecution().sparkPlan()
        return self.make(
            self.first.output(),
            found.rdd(),
            found.name(),
            found.outputPartitioning(),
            found.outputOrdering(),
            found.stream(),
        )

"""Broadcast tables that outlast a query: `Broadcasts`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark.lookups.dimensions import Dimension
from spark.lookups.lookup import Lookup
from spark.runtime.internals.plans import frame_of, items

_BROADCAST = "org.apache.spark.sql.execution.exchange.BroadcastExchangeExec"


class Broadcasts:
    """The sides of lookups, on every executor for as long as their dimension's version is the newest.

    Spark plans a broadcast for each query, and collects its rows by a job of its own: four jobs for each small batch. But a
    plan may hold a broadcast that was there before, as those do that Spark adapts while they run; so may ours.
    """

    def __init__(self, lookups: Sequence[Lookup], sides: Callable[[Mapping[str, Dimension]], list[DataFrame]]) -> None:
        """`sides`: what is joined, in the order of the `lookups`."""
        self._lookups, self._make = lookups, sides
        self._of: Mapping[str, Dimension] = {}
        self._sides: list[DataFrame] = []

    def sides(self, dimensions: Mapping[str, Dimension]) -> list[DataFrame]:
        """For `spark.lookups.join.look_up`; sent again only when one of the dimensions was read anew."""
        if dimensions != self._of:
            planned = self._make(dimensions)
            self._sides = [kept(side, lookup.keys) for side, lookup in zip(planned, self._lookups, strict=True)]
            self._of = dimensions
        return self._sides


def kept(side: DataFrame, keys: Sequence[str]) -> DataFrame:
    """The rows of `side`, as the right side of a broadcast join on its columns `keys`, in this order; they must not be nullable.

    They are sent when they are first joined, and never again. Only a join right on them takes them so: Spark plans one with
    a projection or filter in between as if there were no broadcast, and fails.
    """
    spark = side.sparkSession
    # Of the keys' own types: a cast of theirs would make it another broadcast than the one that a batch's join looks for.
    probes = [F.concat("id", F.lit(key)).cast(side.schema[key].dataType).alias(f"probe{key}") for key in keys]
    matches = [F.col(f"probe{key}") == side[key] for key in keys]
    planned = spark.range(1).select(probes).join(F.broadcast(side), matches, "left")
    broadcast = _find(planned._jdf.queryExecution().executedPlan())
    jvm: Any = spark.sparkContext._jvm
    adaptive = jvm.org.apache.spark.sql.execution.adaptive
    stage = adaptive.BroadcastQueryStageExec(0, broadcast, broadcast.canonicalized())
    return frame_of(spark, adaptive.LogicalQueryStage(side._jdf.queryExecution().optimizedPlan(), stage))


def _find(plan: Any) -> Any:
    """The one broadcast of a plan."""
    if plan.getClass().getName() == _BROADCAST:
        return plan
    return next(filter(None, map(_find, items(plan.children()))), None)

"""Broadcast tables that outlast a batch: `kept`, until `release`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from spark.runtime.internals.java import java_class
from spark.runtime.internals.plans import frame_of, items, kind_of, tree

_ADAPTIVE = "org.apache.spark.sql.execution.adaptive"
_BROADCAST = "org.apache.spark.sql.execution.exchange.BroadcastExchangeExec"


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
    stage = java_class(jvm, f"{_ADAPTIVE}.BroadcastQueryStageExec")(0, broadcast, broadcast.canonicalized())
    return frame_of(
        spark, java_class(jvm, f"{_ADAPTIVE}.LogicalQueryStage")(side._jdf.queryExecution().optimizedPlan(), stage)
    )


def release(query: StreamingQuery) -> None:
    """Free the memory of the tables that a query joins; otherwise Java does so only when its heap is full. The query was stopped, and none of its tasks runs."""
    execution = query._jsq.streamingQuery().lastExecution()
    # What could not be planned has no tables.
    with suppress(Py4JError):
        for step in () if execution is None else tree(execution.executedPlan()):
            exchange = step.broadcast() if kind_of(step) == "BroadcastQueryStageExec" else step
            # `executeBroadcast` would make a table that is not there.
            if kind_of(exchange) == "BroadcastExchangeExec" and exchange.metrics().apply("dataSize").value() > 0:
                # What failed, or was cancelled, has nothing to free.
                with suppress(Py4JError):
                    broadcast = exchange.executeBroadcast()
                    if broadcast.isValid():
                        broadcast.destroy()


def _find(plan: Any) -> Any:
    """The one broadcast of a plan."""
    if plan.getClass().getName() == _BROADCAST:
        return plan
    return next(filter(None, map(_find, items(plan.children()))), None)

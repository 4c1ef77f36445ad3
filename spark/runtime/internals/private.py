"""What pipelines use of Spark's private classes, and whether it is there: `PRIVATE`, `moved`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from spark.runtime.internals.java import java_class

_SPARK = "org.apache.spark"
_JOINS = "sql.execution.streaming.operators.stateful.join"

PRIVATE: Mapping[str, Sequence[tuple[str, str, int]]] = {
    "keep_broadcasts": [
        ("sql.execution.adaptive.BroadcastQueryStageExec", "", 3),
        ("sql.execution.adaptive.LogicalQueryStage", "", 2),
    ],
    "plan_once": [("rdd.MapPartitionsRDD", "", 7), ("rdd.MapPartitionsRDD", "f", 0)],
    "read_once": [
        ("sql.execution.SparkPlan", "metrics", 0),
    ],
    "": [
        ("sql.execution.streaming.runtime.StreamingQueryWrapper", "streamingQuery", 0),
        ("sql.execution.streaming.runtime.StreamExecution", "lastExecution", 0),
        ("sql.execution.datasources.v2.MicroBatchScanExec", "start", 0),
        ("sql.execution.datasources.v2.MicroBatchScanExec", "end", 0),
        ("sql.classic.Dataset", "ofRows", 2),
        ("sql.catalyst.plans.logical.Project", "", 2),
        ("sql.catalyst.plans.logical.Filter", "", 2),
        ("sql.catalyst.plans.logical.Expand", "", 3),
        (f"{_JOINS}.StreamingSymmetricHashJoinHelper", "getStateWatermark", 7),
        ("sql.classic.SparkSession", "internalCreateDataFrame", 3),
        ("sql.catalyst.parser.CatalystSqlParser", "", 0),
        ("sql.catalyst.plans.logical.SubqueryAlias", "", 2),
        ("sql.catalyst.AliasIdentifier", "", 1),
        ("sql.catalyst.FunctionIdentifier", "", 1),
        ("sql.catalyst.analysis.FunctionRegistry", "builtin", 0),
        ("sql.catalyst.expressions.Expression", "eval", 1),
        ("sql.catalyst.trees.Origin", "sqlText", 0),
        ("sql.catalyst.expressions.JsonToStructs", "options", 0),
        ("sql.catalyst.expressions.SubqueryExpression", "canonicalized", 0),
        ("sql.catalyst.expressions.Or", "", 2),
        ("sql.catalyst.expressions.IsNotNull", "", 1),
        ("sql.catalyst.expressions.Alias", "", 6),
        ("api.python.PythonUtils", "toSeq", 1),
        ("sql.execution.datasources.v2.DataSourceRDDPartition", "inputPartitions", 0),
        ("sql.kafka010.KafkaBatchInputPartition", "offsetRange", 0),
    ],
    "state": [
        ("sql.execution.ProjectExec", "", 2),
        ("sql.execution.SparkPlan", "execute", 0),
    ],
    "real-time": [
        ("sql.streaming.Trigger", "RealTime", 1),
        ("sql.kafka010.producer.InternalKafkaProducerPool$", "reset", 0),
        ("scheduler.TaskSchedulerImpl", "runningTasksByExecutors", 0),
        ("sql.catalyst.rules.RuleExecutor", "execute", 1),
        ("sql.catalyst.rules.RuleExecutor", "batches", 0),
        ("sql.catalyst.optimizer.Optimizer", "nonExcludableRules", 0),
        ("sql.execution.QueryExecution", "explainString", 1),
        ("sql.execution.WholeStageCodegenExec", "doCodeGen", 0),
        ("sql.execution.SparkPlan", "executeBroadcast", 0),
    ],
}
"""What this package uses of Spark's private classes: class, member and its number of parameters; without a member a constructor. By the
setting that leaves it out, or the mode or command that needs it; under no name, every pipeline needs it.
"""


def moved(spark: SparkSession, members: Sequence[tuple[str, str, int]]) -> list[str]:
    """Those that are not there: classes, or members with so many parameters."""
    return [
        f"{name}{member and f'.{member}'}" for name, member, count in members if not _has(spark, name, member, count)
    ]


def _has(spark: SparkSession, name: str, member: str, count: int) -> bool:
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    try:
        found = java_class(jvm, "java.lang.Class").forName(f"{_SPARK}.{name}")
    except Py4JJavaError:
        return False
    # One text of all: a class has hundreds of methods, and each question is a call into the JVM.
    text = java_class(jvm, "org.apache.commons.lang3.ArrayUtils").toString
    if not member:
        return count in _parameters(text(found.getConstructors()), name)
    is_field = re.search(rf"\.{re.escape(member)}[,}}]", text(found.getDeclaredFields())) is not None
    return is_field or count in _parameters(text(found.getMethods()), member)


def _parameters(signatures: str, name: str) -> set[int]:
    """How many parameters there are in the signatures with this name, as Java writes them."""
    found = re.findall(rf"\.{re.escape(name)}\(([^)]*)\)", signatures)
    return {each.count(",") + bool(each) for each in found}

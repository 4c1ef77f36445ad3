"""What a pipeline's function makes of groups as Spark's state has them: `of_groups`. Plans are Spark's private business."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.types import DataType

from spark.runtime.internals.java import java_class
from spark.runtime.internals.plans import FILTER, NotRowByRow, items, named_as, seq, type_of
from spark.runtime.internals.private import PRIVATE, moved

_AGGREGATE = "Aggregate"
"""The end of the name of a step that groups: the last one makes the values, of which those before it keep the parts."""


def of_groups(made: DataFrame, stored: DataFrame) -> DataFrame:
    """`made`, which groups an empty frame once, but of groups that are `stored`: by position the keys, then the parts of each value, as Spark
    keeps them in a state. Each is given, also where the function has a filter behind its grouping.

    Raises NotRowByRow if the function keeps other ones, or this Spark has no way to put them together.
    """
    spark = made.sparkSession
    if gone := moved(spark, PRIVATE["state"]):
        raise NotRowByRow(f"Spark {spark.version} has no {', '.join(gone)}")
    jvm: Any = spark.sparkContext._jvm
    project = java_class(jvm, "org.apache.spark.sql.execution.ProjectExec")
    parts = stored._jdf.queryExecution().executedPlan()

    def over(node: Any) -> Any:
        (below,) = items(node.children())
        if node.nodeName() == FILTER:
            return over(below)
        if not node.nodeName().endswith(_AGGREGATE):
            return node.withNewChildren(seq(jvm, [over(below)]))
        kept, wanted = items(parts.output()), items(below.output())
        if [*map(_kind, kept)] != [*map(_kind, wanted)]:
            raise NotRowByRow(f"the state has {_told(kept)}, and the function keeps {_told(wanted)}")
        columns = [named_as(jvm, one, each.name(), each.exprId()) for one, each in zip(kept, wanted, strict=True)]
        return node.withNewChildren(seq(jvm, [project(seq(jvm, columns), parts)]))

    session: Any = spark._jsparkSession
    rows = over(made._jdf.queryExecution().sparkPlan()).execute()
    return DataFrame(session.internalCreateDataFrame(rows, made._jdf.schema(), False), spark)


def _kind(attribute: Any) -> str:
    kind: DataType = type_of(attribute)
    return kind.simpleString()


def _told(attributes: list[Any]) -> str:
    return ", ".join(f"{each.name()} {_kind(each)}" for each in attributes)

"""What a DataFrame's logical plan tells, and frames of changed plans. All of it is Spark's private business."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession

_PASSING_ON = ("Project", "SubqueryAlias")
"""Steps that give one row for each that they get."""


class NotRowByRow(Exception):
    """A step between two frames does more than to make one row of one."""


def frame_of(spark: SparkSession, plan: Any) -> DataFrame:
    """What a plan of the JVM's gives. Spark's Python API has no way to say it."""
    jvm: Any = spark.sparkContext._jvm
    return DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, plan), spark)


def items(seq: Any) -> list[Any]:
    """Of a Scala Seq."""
    return [seq.apply(i) for i in range(seq.size())]


def unchanged(made: DataFrame, source: DataFrame) -> frozenset[str]:
    """The columns of `made` that are those of `source` with the same name, as they were there."""
    there = _ids(source)
    return frozenset(name for name, number in _ids(made).items() if there.get(name) == number)


def used(made: DataFrame, source: DataFrame) -> frozenset[str]:
    """The columns of `source` that `made` computes with, and does not only pass on, as its optimised plan has it."""
    names = {number: name for name, number in _ids(source).items()}
    found: set[int] = set()
    node = made._jdf.queryExecution().optimizedPlan()
    while children := items(node.children()):
        for each in items(node.expressions()):
            if each.getClass().getSimpleName() != "AttributeReference":
                found.update(attribute.exprId().id() for attribute in items(each.references().toSeq()))
        (node,) = children
    return frozenset(names[number] for number in found if number in names)


def steps(made: DataFrame, source: DataFrame) -> Iterator[Any]:
    """The plan's nodes from `made` down to `source`, that excluded. Raises NotRowByRow where one is no projection."""
    end, node = _plan(source), _plan(made)
    while not node.fastEquals(end):
        if node.nodeName() not in _PASSING_ON:
            raise NotRowByRow(str(node.nodeName()))
        yield node
        (node,) = items(node.children())


def expressions(node: Any) -> Iterator[Any]:
    """All in a node of a plan, the inner ones included."""
    left = items(node.expressions())
    while left:
        found = left.pop()
        yield found
        left += items(found.children())


def carrying(made: DataFrame, source: DataFrame, names: Collection[str]) -> DataFrame:
    """`made` with these columns of `source`, which whoever made it may have left out. Raises NotRowByRow."""
    missing = sorted(set(names).difference(made.columns))
    if not missing:
        return made
    attributes = [each for each in items(_plan(source).output()) if each.name() in missing]
    spark, plan = made.sparkSession, _plan(source)
    jvm: Any = spark.sparkContext._jvm
    for node in reversed(list(steps(made, source))):
        if node.nodeName() == "Project":
            there = {each.exprId().id() for each in items(node.projectList()) if each.resolved()}
            added = [each for each in attributes if each.exprId().id() not in there]
            columns = _seq(jvm, [*items(node.projectList()), *added])
            plan = jvm.org.apache.spark.sql.catalyst.plans.logical.Project(columns, plan)
        else:
            plan = node.withNewChildren(_seq(jvm, [plan]))
    return frame_of(spark, plan)


def _plan(frame: DataFrame) -> Any:
    return frame._jdf.queryExecution().analyzed()


def _ids(frame: DataFrame) -> dict[str, int]:
    return {each.name(): each.exprId().id() for each in items(_plan(frame).output())}


def _seq(jvm: Any, values: Sequence[Any]) -> Any:
    found = jvm.java.util.ArrayList()
    for value in values:
        found.add(value)
    return jvm.org.apache.spark.api.python.PythonUtils.toSeq(found)

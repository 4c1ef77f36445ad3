"""What the plan of a join of two frames tells, and frames of changed ones. All of it is Spark's private business."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from spark.runtime.internals.java import java_class
from spark.runtime.internals.plans import (
    FILTER,
    NotRowByRow,
    analyzed,
    catalyst,
    column_id,
    frame_of,
    items,
    kind_of,
    named_as,
    only_chooses,
    said,
    seq,
    tree,
)

JOIN = "Join"
"""The step that gives the pairs of two frames' rows."""
OCCURRED_AT = "__occurred_at"
"""The column of a frame of `Side.over` with the time that is compared with the watermark."""
WATERMARK = "spark.watermarkDelayMs"
"""In a column's metadata: it has a watermark, behind its greatest value by so many milliseconds."""

_STATEFUL_JOIN = "org.apache.spark.sql.execution.streaming.operators.stateful.join"
_PROJECT = "Project"
_FAR_MS = 10**13
"""Any instant would do."""


@dataclass(frozen=True, slots=True)
class Side:
    """One input of a join, as Spark's optimiser leaves it: the `steps` from the join down to the frame that the function gets, whose columns are
    `given`; the columns with a watermark, `times`.
    """

    steps: Sequence[Any]
    given: Sequence[Any]
    output: Sequence[Any]

    @property
    def times(self) -> list[Any]:
        """Its columns with a watermark."""
        return [each for each in self.output if each.metadata().contains(WATERMARK)]

    def over(self, frame: DataFrame, unfiltered: str) -> DataFrame:
        """What of `frame`, which has the columns of the function's, gets into the join: the columns that it has beyond those, and `OCCURRED_AT`.
        No filter takes away a row where its column `unfiltered` is not null.
        """
        spark = frame.sparkSession
        jvm: Any = spark.sparkContext._jvm
        there = {each.name(): each for each in items(analyzed(frame).output())}
        own = [named_as(jvm, there[each.name()], each.name(), each.exprId()) for each in self.given]
        names = {each.name() for each in self.given}
        beside = [each for name, each in there.items() if name not in names]
        project = catalyst(jvm, "plans.logical.Project")
        plan = project(seq(jvm, [*own, *beside]), analyzed(frame))
        is_kept = catalyst(jvm, "expressions.IsNotNull")(there[unfiltered])
        for step in reversed(self.steps):
            if step.nodeName() == _PROJECT:
                plan = project(seq(jvm, [*items(step.projectList()), *beside]), plan)
            else:
                plan = catalyst(jvm, "plans.logical.Filter")(
                    catalyst(jvm, "expressions.Or")(is_kept, step.condition()), plan
                )
        (time,) = self.times
        number = items(analyzed(spark.range(0)).output())[0].exprId()
        columns = [*beside, named_as(jvm, time, OCCURRED_AT, number)]
        return frame_of(spark, project(seq(jvm, columns), plan))


@dataclass(frozen=True, slots=True)
class OptimisedJoin:
    """The one join of a plan, as Spark's optimiser leaves it."""

    node: Any
    sides: tuple[Side, Side]

    @property
    def kind(self) -> str:
        """Inner, LeftOuter, …"""
        return str(self.node.joinType().toString())

    def is_equal_in_keys(self) -> bool:
        """Whether a column of the one side must be equal to one of the other."""
        return any(True for _ in self._keys())

    def is_forgotten_by_key(self) -> bool:
        """Whether a column with a watermark must be equal to what is no such column. Spark takes the watermark for that of both then, and its state
        forgets a row by the key, before the other side's rows of that key are late.
        """
        times = {each.exprId().id() for side in self.sides for each in side.times}
        for parts in self._keys():
            of_time = [kind_of(part) == "AttributeReference" and part.exprId().id() in times for part in parts]
            if any(of_time) and not all(of_time):
                return True
        return False

    def _keys(self) -> Iterator[tuple[Any, Any]]:
        """The two parts of each equality between the sides."""
        ids = [{each.exprId().id() for each in side.output} for side in self.sides]
        for each in _conjuncts(self.node.condition()):
            if kind_of(each) in ("EqualTo", "EqualNullSafe"):
                left, right = [
                    {attribute.exprId().id() for attribute in items(part.references().toSeq())}
                    for part in (each.left(), each.right())
                ]
                if left and right and any(left <= one and right <= other for one, other in (ids, ids[::-1])):
                    yield each.left(), each.right()

    def is_bounded(self, spark: SparkSession) -> tuple[bool, bool]:
        """Of each side, whether the watermark tells when one of its rows can find no other any more, so that the state forgets it."""
        jvm: Any = spark.sparkContext._jvm
        helper = java_class(jvm, f"{_STATEFUL_JOIN}.StreamingSymmetricHashJoinHelper")
        sides = [seq(jvm, side.output) for side in self.sides]
        watermark = java_class(jvm, "scala.Option").apply(_FAR_MS)
        found = helper.getStateWatermark(*sides, seq(jvm, []), seq(jvm, []), self.node.condition(), watermark, True)
        return found._1().isDefined(), found._2().isDefined()

    def told(self) -> list[Any]:
        """What the state depends on, in words: the condition, and of each side its steps, its columns, and which of them has the watermark."""
        sides = [
            [
                [said(step) for step in side.steps if not only_chooses(step)],
                *([str(each.name()) for each in of] for of in (side.output, side.times)),
            ]
            for side in self.sides
        ]
        return [self.kind, said(self.node), sides]


def optimised_join(made: DataFrame, left: DataFrame, right: DataFrame) -> OptimisedJoin:
    """That of `made`, which was made of `left` and `right`. Raises NotRowByRow if Spark leaves no such join."""
    joins = [each for each in tree(made._jdf.queryExecution().optimizedPlan()) if each.nodeName() == JOIN]
    if len(joins) != 1:
        raise NotRowByRow(f"{len(joins)} joins")
    (node,) = joins
    sides = []
    for child in (node.left(), node.right()):
        steps = []
        while below := items(child.children()):
            if child.nodeName() not in (_PROJECT, FILTER):
                raise NotRowByRow(str(child.nodeName()))
            steps.append(child)
            (child,) = below
        sides.append(Side(steps, items(child.output()), items((steps[0] if steps else child).output())))
    first, second = sides
    ids = [{each.exprId().id() for each in side.given} for side in sides]
    if [column_id(frame, frame.columns[0]) in found for frame, found in zip((left, right), ids, strict=True)] != [
        True
    ] * 2:
        raise NotRowByRow("the two frames in another order than that of the pipeline's topics")
    return OptimisedJoin(node, (first, second))


def all_nodes(made: DataFrame) -> Iterator[Any]:
    """Of a plan, from its end on, the branches of joins included."""
    return tree(analyzed(made))


def grafted(made: DataFrame, frames: Sequence[tuple[DataFrame, DataFrame]]) -> DataFrame:
    """`made`, which was made of the first ones of `frames`, with the columns that the second ones have beyond those; each first one is a
    selection of its second.
    """
    spark = made.sparkSession
    jvm: Any = spark.sparkContext._jvm
    project = catalyst(jvm, "plans.logical.Project")
    wholes = []
    for given, whole in frames:
        own = {each.exprId().id() for each in items(analyzed(given).output())}
        beside = [each for each in items(analyzed(whole).output()) if each.exprId().id() not in own]
        wholes.append((analyzed(given), analyzed(whole), beside))

    def over(node: Any) -> tuple[Any, list[Any]]:
        for given, whole, beside in wholes:
            if node.fastEquals(given):
                return whole, beside
        below = [over(each) for each in items(node.children())]
        attributes = [each for _, beside in below for each in beside]
        if node.nodeName() == _PROJECT:
            ((plan, _),) = below
            return project(seq(jvm, [*items(node.projectList()), *attributes]), plan), attributes
        return node.withNewChildren(seq(jvm, [plan for plan, _ in below])), attributes

    return frame_of(spark, over(analyzed(made))[0])


def _conjuncts(condition: Any) -> Iterator[Any]:
    left = [condition.get()] if condition.isDefined() else []
    while left:
        each = left.pop()
        if kind_of(each) == "And":
            left += [each.left(), each.right()]
        else:
            yield each

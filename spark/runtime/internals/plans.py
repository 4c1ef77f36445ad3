"""What a DataFrame's logical plan tells, and frames of changed plans. All of it is Spark's private business."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, _parse_datatype_json_string

from spark.runtime.internals.java import java_class

PASSING_ON = ("Project", "SubqueryAlias")
"""Steps that give one row for each that they get."""
FILTER = "Filter"
"""The step that gives the row that it gets, or none."""
_TRY = "TryEval"
EXPAND = "Expand"
"""The step that gives several rows for each that it gets, as overlapping windows do."""
COPY = "__copy"
"""The column of a carried frame with the number of the row among those that an `EXPAND` gave for one."""
DEDUPLICATION = "DeduplicateWithinWatermark"
"""The step that gives the first row with certain values, as long as it remembers that."""
AGGREGATE = "Aggregate"
"""The step that gives a row for each group."""
UNION = "Union"
"""The step that gives the rows of all its inputs."""
EXPLODE = "Generate"
"""The step that gives a row for each element of an array."""
INLINE = "Inline"
"""What explodes an array of structs into a column for each of their fields."""
ARRAY, ELEMENT = "__array", "__element"
"""Columns of a frame that is exploded, before and after."""


class NotRowByRow(Exception):
    """A step between two frames needs more than one row at a time."""


def frame_of(spark: SparkSession, plan: Any) -> DataFrame:
    """What a plan of the JVM's gives. Spark's Python API has no way to say it."""
    jvm: Any = spark.sparkContext._jvm
    return DataFrame(java_class(jvm, "org.apache.spark.sql.classic.Dataset").ofRows(spark._jsparkSession, plan), spark)


def settled(frame: DataFrame) -> DataFrame:
    """The frame as those of `foreachBatch` are: over the very tasks that it was planned as."""
    spark = frame.sparkSession
    rows = frame._jdf.queryExecution().toRdd()
    session: Any = spark._jsparkSession
    return DataFrame(session.internalCreateDataFrame(rows, frame._jdf.schema(), False), spark)


def aggregation(made: DataFrame) -> Any:
    """The node of the plan's one aggregation, whose `child` goes into it. Raises NotRowByRow if there is none, or more than one."""
    found = [node for node in nodes(made) if node.nodeName() == AGGREGATE]
    if len(found) != 1:
        raise NotRowByRow(f"{len(found)} aggregations")
    return found[0]


def kept_aggregates(made: DataFrame, node: Any) -> list[int]:
    """Which of the functions of `node`, the one aggregation of `made`, are in the state, by their numbers, in the state's order: the optimizer leaves
    out those of which nothing is made. -1 is one that the optimizer has put in.
    """
    written = _functions(node)
    optimised = tree(made._jdf.queryExecution().optimizedPlan())
    kept = [number for node in optimised if node.nodeName() == AGGREGATE for number in _functions(node)]
    return [written.index(number) if number in written else -1 for number in kept]


def _functions(node: Any) -> list[int]:
    """The ids of an aggregation's functions, from left to right."""
    parts = [part for each in items(node.aggregateExpressions()) for part in tree(each)]
    return [part.resultId().id() for part in parts if kind_of(part) == "AggregateExpression"]


def only_of(made: DataFrame, frames: Sequence[DataFrame], number: int) -> DataFrame:
    """`made`, in place of whose union is that one of its inputs which was made of the frame with the `number`, with the union's columns; each input is made of
    one of the `frames`, in their order: by that Spark's checkpoint tells their offsets apart. Raises NotRowByRow if it is no such union.
    """
    spark, plan = made.sparkSession, analyzed(made)
    unions = [node for node in tree(plan) if node.nodeName() == UNION]
    if len(unions) != 1:
        raise NotRowByRow(f"{len(unions)} unions")
    inputs = items(unions[0].children())
    if any(node.nodeName() == AGGREGATE for each in inputs for node in tree(each)):
        raise NotRowByRow("a grouping before its union")
    made_of = [[at for at, each in enumerate(inputs) if _comes_of(each, analyzed(frame))] for frame in frames]
    if sorted(made_of) != [[at] for at in range(len(inputs))]:
        raise NotRowByRow("a union whose inputs are not one of each topic")
    if sorted(made_of) != made_of:
        raise NotRowByRow("a union whose inputs are in another order than the function's parameters")
    return frame_of(spark, _with_input(spark, plan, number))


def _comes_of(node: Any, end: Any) -> bool:
    return any(each.fastEquals(end) for each in tree(node))


def _with_input(spark: SparkSession, node: Any, number: int) -> Any:
    """A plan with this input in place of its union."""
    jvm: Any = spark.sparkContext._jvm
    children = items(node.children())
    if node.nodeName() != UNION:
        return node.withNewChildren(seq(jvm, [_with_input(spark, each, number) for each in children]))
    found = children[number]
    if number == 0:
        # The union has its ids.
        return found
    columns = zip(items(found.output()), items(node.output()), strict=True)
    named = [named_as(jvm, own, each.name(), each.exprId()) for own, each in columns]
    return catalyst(jvm, "plans.logical.Project")(seq(jvm, named), found)


def united(made: DataFrame) -> dict[str, int]:
    """The columns of its union, and their ids; none where it has none."""
    found = [node for node in tree(analyzed(made)) if node.nodeName() == UNION]
    return {each.name(): each.exprId().id() for node in found for each in items(node.output())}


def renamed_of(node: Any, number: int) -> int:
    """The id of the lowest column that the one with this id, which a node gets, is the same as, under whatever names."""
    for step in _line(node.child()):
        for each in items(step.expressions()):
            if kind_of(each) == "Alias" and each.exprId().id() == number:
                if kind_of(each.child()) != "AttributeReference":
                    return number
                number = each.child().exprId().id()
                break
    return number


def made_as(node: Any, number: int) -> list[Any]:
    """The expressions that the column with this id is made as, somewhere below a node that gets it."""
    for step in _line(node.child()):
        if step.nodeName() == EXPAND:
            at = [each.exprId().id() for each in items(step.output())].index(number)
            return [items(each)[at] for each in items(step.projections())]
        for each in items(step.expressions()):
            if kind_of(each) == "Alias" and each.exprId().id() == number:
                return [each]
    return []


def made_from(node: Any, numbers: set[int]) -> set[int]:
    """The ids of the columns below the lowest step that those with these ids are made from, with all that is on the way; the `numbers` are of
    columns that the `node` gives.
    """
    found = set(numbers)
    for step in _line(node):
        if step.nodeName() == EXPAND:
            columns = zip(items(step.output()), zip(*map(items, items(step.projections())), strict=True), strict=True)
            made = [(output.exprId().id(), each) for output, values in columns for each in values]
        else:
            made = [
                (each.exprId().id(), each.child()) for each in items(step.expressions()) if kind_of(each) == "Alias"
            ]
        for number, each in made:
            if number in found:
                found |= {column.exprId().id() for column in items(each.references().toSeq())}
    return found


def tree(node: Any) -> Iterator[Any]:
    """A step of a plan, or an expression, and all below it."""
    yield node
    for child in items(node.children()):
        yield from tree(child)


def items(seq: Any) -> list[Any]:
    """Of a Scala Seq."""
    return [seq.apply(i) for i in range(seq.size())]


def kind_of(expression: Any) -> str:
    """The class of an expression in a plan."""
    return str(expression.getClass().getSimpleName())


def type_of(expression: Any) -> DataType:
    """The type of its value."""
    return _parse_datatype_json_string(expression.dataType().json())


def constant_text(expression: Any) -> str | None:
    """Its value as text if that depends on no column; None if it does, or is null."""
    value = expression.eval(None) if expression.foldable() else None
    return None if value is None else str(value)


def sql_of(expression: Any) -> str | None:
    """The SQL that it was written as; None of what was made by calls."""
    origin = expression.origin()
    place = (origin.sqlText(), origin.startIndex(), origin.stopIndex())
    if not all(each.isDefined() for each in place):
        return None
    text, start, stop = (each.get() for each in place)
    return str(text)[start : stop + 1]


def column_id(frame: DataFrame, name: str) -> int:
    """The id of a column, which a column that is made of it by the same name has not."""
    return _ids(frame)[name]


def unchanged(made: DataFrame, source: DataFrame) -> frozenset[str]:
    """The columns of `made` that are those of `source` with the same name, as they were there."""
    there = _ids(source)
    return frozenset(name for name, number in _ids(made).items() if there.get(name) == number)


def used(made: DataFrame, source: DataFrame) -> frozenset[str]:
    """The columns of `source` that `made` needs for more than to pass them on `unchanged`, as its optimised plan has it."""
    names, kept = {number: name for name, number in _ids(source).items()}, unchanged(made, source)
    node = made._jdf.queryExecution().optimizedPlan()
    outputs = zip(made.columns, items(node.output()), strict=True)
    found = {each.exprId().id() for name, each in outputs if name not in kept}
    while children := items(node.children()):
        is_filter = node.nodeName() == FILTER
        for each in items(node.expressions()):
            if is_filter or kind_of(each) != "AttributeReference":
                found.update(attribute.exprId().id() for attribute in items(each.references().toSeq()))
        (node,) = children
    return frozenset(names[number] for number in found if number in names)


def nodes(made: DataFrame) -> Iterator[Any]:
    """Of a plan, from its end on. Raises NotRowByRow where it branches."""
    return _line(analyzed(made))


def _line(node: Any) -> Iterator[Any]:
    left = [node]
    while left:
        if len(left) > 1:
            raise NotRowByRow("two inputs")
        (node,) = left
        yield node
        left = items(node.children())


def steps(made: DataFrame, source: DataFrame) -> Iterator[Any]:
    """The plan's nodes from `made` down to `source`, that excluded. Raises NotRowByRow where one is no projection, filter or explode."""
    end, node = analyzed(source), analyzed(made)
    while not node.fastEquals(end):
        if node.nodeName() not in (*PASSING_ON, FILTER, EXPLODE, EXPAND):
            raise NotRowByRow(str(node.nodeName()))
        yield node
        (node,) = items(node.children())


def expressions(node: Any, *, tried: bool = True) -> Iterator[Any]:
    """All in a node of a plan, the inner ones included; those whose failure Spark makes null of only if `tried`."""
    left = items(node.expressions())
    while left:
        found = left.pop()
        yield found
        if tried or kind_of(found) != _TRY:
            left += items(found.children())


def said(step: Any) -> list[tuple[str, list[int]]]:
    """Each expression in words, and of its columns, from left to right, which ones of their name they are among those that the step gets: there may be
    several, as of two sides of a join. Behind them, of the arguments of its lambda functions, which have no names in those words, which ones they are
    in the order of their first places. Ids differ at each start.
    """
    given = [each for child in items(step.children()) for each in items(child.output())]
    number, place = Counter[str](), {}
    for each in given:
        place[each.exprId().id()] = number[each.name()]
        number[each.name()] += 1
    told = []
    for each in items(step.expressions()):
        columns = [part.exprId().id() for part in tree(each) if kind_of(part) == "AttributeReference"]
        arguments = [part.exprId().id() for part in tree(each) if kind_of(part) == "NamedLambdaVariable"]
        first = {argument: number for number, argument in enumerate(dict.fromkeys(arguments))}
        known = [place[column] for column in columns if column in place]
        told.append((str(each.sql()), known + [first[argument] for argument in arguments]))
    return told


def what_comes_to(
    node: Any, source: DataFrame, *others: int
) -> tuple[frozenset[str], list[list[tuple[str, list[int]]]]]:
    """The columns of `source` that the columns which a node refers to are made of, and `others` by their ids; and how they are made, in words: by the
    steps between, as Spark's optimiser leaves them, without those that only choose columns. What is not needed is in none of them.
    """
    spark = source.sparkSession
    jvm: Any = spark.sparkContext._jvm
    needed = {each.exprId().id() for each in items(node.references().toSeq())} | set(others)
    output = [each for each in items(node.child().output()) if each.exprId().id() in needed]
    plan = frame_of(spark, catalyst(jvm, "plans.logical.Project")(seq(jvm, output), node.child()))
    found = [step for step in _line(plan._jdf.queryExecution().optimizedPlan()) if items(step.children())]
    found = [step for step in found if not only_chooses(step)]
    return needed_of(source, found, output), [said(step) for step in found]


def only_chooses(step: Any) -> bool:
    """Whether it gives some of the columns that it gets, and nothing else: where all are needed, the optimiser takes it out."""
    return step.nodeName() == "Project" and all(
        kind_of(each) == "AttributeReference" for each in items(step.projectList())
    )


def needed_of(source: DataFrame, steps: Sequence[Any], output: Sequence[Any]) -> frozenset[str]:
    """The columns of `source` that optimised steps over it, which give the `output`, need."""
    referred = [each for step in steps for one in items(step.expressions()) for each in items(one.references().toSeq())]
    numbers = {each.exprId().id() for each in (*referred, *output)}
    return frozenset(name for name, number in _ids(source).items() if number in numbers)


def exploded_fields(made: DataFrame, source: DataFrame) -> dict[str, str | None]:
    """The columns of `made` that come of an explode, and as which field of its elements; None: they are the elements."""
    fields: dict[int | None, str | None] = {}
    for step in reversed(list(steps(made, source))):
        if step.nodeName() == EXPLODE:
            of = zip(items(step.generatorOutput()), _element_fields(step), strict=True)
            fields = {each.exprId().id(): name for each, name in of}
            continue
        for each in items(step.expressions()):
            if fields.get(taken_out(each), "") is None:
                fields[each.exprId().id()] = str(each.child().extractFieldName())
            elif kind_of(each) == "Alias" and kind_of(each.child()) == "AttributeReference":
                before = each.child().exprId().id()
                fields |= {each.exprId().id(): fields[before]} if before in fields else {}
    return {name: fields[number] for name, number in _ids(made).items() if number in fields}


def taken_out(expression: Any) -> int | None:
    """The id of the column that an expression takes a field out of; None if it is another one."""
    is_field = kind_of(expression) == "Alias" and kind_of(expression.child()) == "GetStructField"
    of = expression.child().child() if is_field else None
    return of.exprId().id() if of is not None and kind_of(of) == "AttributeReference" else None


def element_ids(step: Any) -> set[int]:
    """The ids of the columns of an explode that are its elements."""
    return (
        {each.exprId().id() for each in items(step.generatorOutput())} if kind_of(step.generator()) != INLINE else set()
    )


def _element_fields(step: Any) -> list[str | None]:
    """As which field of the elements each column of an explode comes."""
    if kind_of(step.generator()) != INLINE:
        return [None]
    return [str(each.name()) for each in step.generator().child().dataType().elementType().fields()]


def sorted_before(made: DataFrame, step: str, column: str) -> DataFrame:
    """`made`, whose `step`, which has keys, gets its rows in the order of a column: in each task, those of one key in one task."""
    spark = made.sparkSession
    jvm: Any = spark.sparkContext._jvm

    def over(node: Any) -> Any:
        children = items(node.children())
        if node.nodeName() != step:
            return node.withNewChildren(seq(jvm, [over(each) for each in children])) if children else node
        (child,) = children
        # The partitions that the step itself asks for: else Spark would shuffle the sorted rows again.
        keys = [str(each.name()) for each in items(node.keys())]
        below = frame_of(spark, child).repartition(*keys).sortWithinPartitions(column)
        return node.withNewChildren(seq(jvm, [analyzed(below)]))

    return frame_of(spark, over(analyzed(made)))


def carrying(
    made: DataFrame,
    source: DataFrame,
    whole: DataFrame,
    unfiltered: str | None = None,
    exploded: Callable[[DataFrame], DataFrame] | None = None,
) -> DataFrame:
    """`made`, which was made of `source`, with the columns that `whole` has beyond those; `source` is a selection of `whole`.

    No filter takes away a row where the column `unfiltered` of `whole` is not null. In place of an explode goes `exploded`: it is given a
    frame with the array as `ARRAY`, returns one with an `ELEMENT` in each row, and its further columns with two underscores before their
    name are carried, too. Raises NotRowByRow.
    """
    nodes = list(steps(made, source))
    if not nodes:
        return whole
    given = set(_ids(source).values())
    attributes = [each for each in items(analyzed(whole).output()) if each.exprId().id() not in given]
    spark, plan = made.sparkSession, analyzed(whole)
    jvm: Any = spark.sparkContext._jvm
    kept = [each for each in attributes if each.name() == unfiltered]
    for node in reversed(nodes):
        if node.nodeName() == EXPLODE and exploded is not None:
            plan = _exploded(spark, node, plan, exploded)
            names = {each.name() for each in attributes}
            attributes = [each for each in items(plan.output()) if each.name() in names or each.name().startswith("__")]
        elif node.nodeName() == "Project":
            columns = seq(jvm, [*items(node.projectList()), *attributes])
            plan = catalyst(jvm, "plans.logical.Project")(columns, plan)
        elif node.nodeName() == EXPAND:
            plan, copy = _expanded(spark, node, plan, attributes)
            attributes = [*attributes, copy]
        elif node.nodeName() == FILTER and kept:  # below an explode: above, it is refused
            condition = catalyst(jvm, "expressions.Or")(
                catalyst(jvm, "expressions.IsNotNull")(kept[0]), node.condition()
            )
            plan = catalyst(jvm, "plans.logical.Filter")(condition, plan)
        else:
            plan = node.withNewChildren(seq(jvm, [plan]))
    return frame_of(spark, plan)


def _expanded(spark: SparkSession, node: Any, plan: Any, attributes: Sequence[Any]) -> tuple[Any, Any]:
    """A plan in place of the `EXPAND` node over `plan`, with these attributes too, and that of `COPY`."""
    jvm: Any = spark.sparkContext._jvm
    given = items(node.projections())
    numbers = analyzed(spark.range(0).select(*[F.lit(number).alias(COPY) for number in range(len(given))]))
    copy, *_ = items(numbers.output())
    literals = [each.child() for each in items(numbers.projectList())]
    projections = [
        seq(jvm, [*items(each), *attributes, literal]) for each, literal in zip(given, literals, strict=True)
    ]
    output = seq(jvm, [*items(node.output()), *attributes, copy])
    return catalyst(jvm, "plans.logical.Expand")(seq(jvm, projections), output, plan), copy


def _exploded(spark: SparkSession, node: Any, plan: Any, exploded: Callable[[DataFrame], DataFrame]) -> Any:
    """A plan in place of the explode `node` over `plan`, whose output has the columns of both under their ids."""
    jvm: Any = spark.sparkContext._jvm
    new_id = items(analyzed(spark.range(0)).output())[0].exprId()
    array = named_as(jvm, node.generator().child(), ARRAY, new_id)
    before = catalyst(jvm, "plans.logical.Project")(seq(jvm, [*items(plan.output()), array]), plan)
    after = exploded(frame_of(spark, before))
    element = F.col(ELEMENT)
    fields = [element]
    if kind_of(node.generator()) == INLINE:
        fields = [element[name] for name in after.select(f"{ELEMENT}.*").columns]
    made = [f"{ELEMENT}_{number}" for number in range(len(fields))]
    after = after.select("*", *[field.alias(name) for name, field in zip(made, fields, strict=True)])
    outputs = items(analyzed(after).output())
    kept, found = outputs[: -len(made)], outputs[-len(made) :]
    given = zip(found, items(node.generatorOutput()), strict=True)
    own = [named_as(jvm, value, each.name(), each.exprId()) for value, each in given]
    kept = [each for each in kept if each.name() != ELEMENT]
    return catalyst(jvm, "plans.logical.Project")(seq(jvm, [*kept, *own]), analyzed(after))


def named_as(jvm: Any, expression: Any, name: str, number: Any) -> Any:
    nothing = java_class(jvm, "scala.Option").apply(None)
    make = catalyst(jvm, "expressions.Alias")
    return make(expression, name, number, seq(jvm, []), nothing, seq(jvm, []))


def analyzed(frame: DataFrame) -> Any:
    return frame._jdf.queryExecution().analyzed()


def _ids(frame: DataFrame) -> dict[str, int]:
    return {each.name(): each.exprId().id() for each in items(analyzed(frame).output())}


def catalyst(jvm: Any, name: str) -> Any:
    """A class of Spark's planner, by its name in there."""
    return java_class(jvm, f"org.apache.spark.sql.catalyst.{name}")


def seq(jvm: Any, values: Sequence[Any]) -> Any:
    found = java_class(jvm, "java.util.ArrayList")()
    for value in values:
        found.add(value)
    return java_class(jvm, "org.apache.spark.api.python.PythonUtils").toSeq(found)

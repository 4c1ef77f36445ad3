"""What a pipeline makes of all records, as the places of a list: `Ranking`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from contracts.definitions.catalog import Catalog
from spark.derivation.fitness import called, check_repeated, check_source, check_types, check_wanted, event_type
from spark.derivation.stateful.aggregation import check_groups, check_order
from spark.derivation.stateful.event_time import REASON, watermarks
from spark.derivation.stateful.state_plan import state_plan
from spark.derivation.stateful.stateful_rows import Read, stateful_rows
from spark.derivation.steps import check_expressions, check_names
from spark.pipeline import Pipeline
from spark.records.decode import events
from spark.records.schemas import WriterSchemas
from spark.runtime.errors import PipelineUnfit
from spark.runtime.internals.plans import (
    FILTER,
    PASSING_ON,
    NotRowByRow,
    aggregation,
    constant_text,
    expressions,
    items,
    kept_aggregates,
    kind_of,
    nodes,
    said,
    type_of,
    what_comes_to,
)
from spark.sinks.kafka.sink import ToRows, outgoing

_SORT, _LIMIT = "Sort", "GlobalLimit"
_ABOVE = (*PASSING_ON, _SORT, _LIMIT, "LocalLimit")
"""Steps that a ranking may have behind its grouping."""


class Ranking:
    """Decodes raw records, calls the pipeline's function on the good ones, and numbers the groups that it chooses, from 1 on, in its order.

    Every batch writes the whole list again. No record is late; those that are bad are found in the same records a second time, by `aside`.
    """

    def __init__(self, spark: SparkSession, pipeline: Pipeline, catalog: Catalog, schema_id: int) -> None:
        """`schema_id` is that of the target's schema. Raises PipelineUnfit, which says what to change."""
        target = catalog.topic(pipeline.target)
        self._pipeline, self._key, self._occurred_at = pipeline, str(target.key), target.occurred_at
        self._schema, self._schema_id = catalog.schema(pipeline.target), schema_id
        self._names, used, grouping = _check(spark, pipeline, catalog, self._key)
        self.plan = state_plan(catalog, {pipeline.source: used}, [grouping, "ranking"])
        """A hash of what the state depends on: how events are read, filtered and grouped. How groups are ordered, and how many there are of them, is not in it."""

    def stream(self, reads: Sequence[Read]) -> DataFrame:
        """A stream of raw records to one of the groups in their order."""
        (read,) = reads
        made = called(self._pipeline, events(read.raw, read.schemas).where(F.col(REASON).isNull()).select(self._names))
        if watermarks(made):
            raise PipelineUnfit(
                f"{self._pipeline.name} calls withWatermark, and in a ranking no record is late: leave it out"
            )
        return made

    def to_rows(self, made: DataFrame) -> DataFrame:
        """The groups of a batch, which lie in one partition in their order, to rows of `stateful_rows`."""
        placed = made.withColumn(self._key, (F.monotonically_increasing_id() + 1).cast("int"))
        return stateful_rows(placed, self._schema, self._schema_id, F.col(self._key).cast("string"), self._occurred_at)

    def aside(self, topic: str, schemas: WriterSchemas, watermark_ms: int) -> ToRows:
        """Raw records to rows of `spark.sinks.kafka.sink.outgoing`: the bad ones."""

        def rows(raw: DataFrame) -> DataFrame:
            bad = events(raw, schemas).where(F.col(REASON).isNotNull())
            return outgoing(bad, F.lit(None).cast("binary"), F.lit(""))

        return rows


def _check(
    spark: SparkSession, pipeline: Pipeline, catalog: Catalog, key: str
) -> tuple[list[str], frozenset[str], list[Any]]:
    """The fields that the function gets; those of which it groups, and how, in words. Raises PipelineUnfit."""
    check_source(pipeline, catalog)
    derivation = catalog.topic(pipeline.target).derivation
    assert derivation is not None and derivation.places is not None
    if (partitions := catalog.topic(pipeline.target).partitions) != 1:
        raise PipelineUnfit(
            f"{pipeline.name} ranks, and {pipeline.target} has {partitions} partitions by its contract: set partitions: 1 there"
        )
    if pipeline.lookups:
        raise PipelineUnfit(f"{pipeline.name} has lookups and ranks, which it can't: leave the lookups out")
    given = spark.createDataFrame(spark.sparkContext.emptyRDD(), event_type(spark, catalog.schema(pipeline.source)))
    made = called(pipeline, given)
    check_names(pipeline, made.columns)
    check_wanted(spark, pipeline, catalog, pipeline.target, made, (key,))
    node = _check_steps(pipeline, made, derivation.places)
    check_repeated(pipeline, made, given)
    check_types(pipeline, catalog, pipeline.target, (key,))
    used, before = what_comes_to(node, given)
    return given.columns, used, [kept_aggregates(made, node), said(node), *before]


def _check_steps(pipeline: Pipeline, made: DataFrame, places: int) -> Any:
    """The grouping. Raises PipelineUnfit."""
    try:
        found = aggregation(made)
    except NotRowByRow as error:
        raise PipelineUnfit(
            f"{pipeline.name} has {error}, and the contract of {pipeline.target} says records: ranking: group once"
        ) from error
    steps = list(nodes(made))
    above = steps[: [node.nodeName() for node in steps].index(found.nodeName())]
    if any(node.nodeName() == FILTER for node in above):
        raise PipelineUnfit(
            f"{pipeline.name} filters its groups: when fewer meet the condition, places that were written would keep what they said. Filter the records "
            "before they are grouped, or order groups that don't meet the condition last: F.when(condition, value).desc_nulls_last()"
        )
    for node in steps:
        allowed = _ABOVE if node in above else (*PASSING_ON, FILTER, "Aggregate", "LogicalRDD", "LocalRelation")
        if node.nodeName() not in allowed:
            raise PipelineUnfit(
                f"{pipeline.name} has a step {node.nodeName()}, which a ranking can't have: filter and compute, group by fields, order the groups, and "
                "take the first of them"
            )
        check_expressions(pipeline, node)
        for each in expressions(node):
            check_order(pipeline, each)
    _check_list(pipeline, above, found, places)
    check_groups(pipeline, found)
    return found


def _check_list(pipeline: Pipeline, above: Sequence[Any], node: Any, places: int) -> None:
    """Whether the groups have one order, and the first `places` of them are taken, by the steps behind their grouping, `node`."""
    kinds = [each.nodeName() for each in above]
    if kinds.count(_SORT) != 1 or kinds.count(_LIMIT) != 1 or kinds.index(_SORT) < kinds.index(_LIMIT):
        raise PipelineUnfit(
            f"{pipeline.name} ranks, and does not order its groups once and then take the first ones once: end with .orderBy(…).limit({places})"
        )
    sort, limit = above[kinds.index(_SORT)], above[kinds.index(_LIMIT)]
    if (taken := constant_text(limit.limitExpr())) != str(places):
        raise PipelineUnfit(
            f"{pipeline.name} takes {taken} groups, and the contract of {pipeline.target} says places: {places}: make them agree"
        )
    if not getattr(sort, "global")():
        raise PipelineUnfit(f"{pipeline.name} sorts within partitions, which is no order of all: use orderBy")
    if windows := [each for each in items(node.groupingExpressions()) if type_of(each).typeName() == "struct"]:
        raise PipelineUnfit(
            f"{pipeline.name} groups by {windows[0].name()}, a window, and a ranking forgets no group, so its state would grow for ever: group by fields "
            "with few values"
        )
    by = {each.child().exprId().id() for each in items(sort.order()) if kind_of(each.child()) == "AttributeReference"}
    open_ones = [
        str(each.name()) if kind_of(each) == "AttributeReference" else str(each.sql())
        for each in items(node.groupingExpressions())
        if kind_of(each) != "AttributeReference" or each.exprId().id() not in by
    ]
    if open_ones:
        raise PipelineUnfit(
            f"{pipeline.name} does not say which of two groups comes first that are equal in what it orders by, and a batch that runs again must give the "
            f"same list: add {', '.join(open_ones)} to the end of orderBy, computed before the grouping and under the same name"
        )

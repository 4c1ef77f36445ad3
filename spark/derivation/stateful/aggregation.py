"""What a pipeline makes of many records, of one topic or of two: `Aggregation`."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DecimalType, StructType

from contracts.definitions.catalog import Catalog
from contracts.definitions.topic import TopicContract
from spark.derivation.fitness import called, check_repeated, check_source, check_types, check_wanted, event_type
from spark.derivation.stateful.event_time import REASON, check_watermarks, told, without_future
from spark.derivation.stateful.state_plan import state_plan
from spark.derivation.stateful.stateful_rows import Read, stateful_rows
from spark.derivation.steps import check_expressions, check_names
from spark.pipeline import Pipeline
from spark.records.decode import events
from spark.records.schemas import WriterSchemas
from spark.runtime.errors import PipelineUnfit
from spark.runtime.internals.plans import (
    COPY,
    EXPAND,
    FILTER,
    PASSING_ON,
    NotRowByRow,
    aggregation,
    analyzed,
    carrying,
    column_id,
    expressions,
    frame_of,
    items,
    kept_aggregates,
    kind_of,
    made_as,
    made_from,
    nodes,
    only_of,
    renamed_of,
    said,
    tree,
    type_of,
    united,
    what_comes_to,
)
from spark.sinks.kafka.sink import LATE, ToRows, outgoing

FINAL = "is_final"
"""The platform's field of an aggregate: whether nothing can change it any more."""

_WHOLE = ("byte", "short", "integer", "long", "decimal")
_COUNTING = ("Count", "Min", "Max", "BitAndAgg", "BitOrAgg", "BitXorAgg", "HyperLogLogPlusPlus", "Percentile")
"""Functions whose value does not depend on the order of the records, whatever they are given."""
_ADDING = {"Sum": _WHOLE, "Average": tuple(each for each in _WHOLE if each != "long")}
"""Those for which it does not with inputs of these types. The mean of longs is computed from a sum of doubles."""

_CHOOSING = ("Min", "Max")
_TRY = "TRY"
_DIGITS = 28
"""Spark gives the sum of decimals ten digits more, of 38 at most: so many records can't overflow."""

_OCCURRED_AT = "__occurred_at"
"""The column with the time of the event, which the function may have named otherwise."""

_SESSION = "spark.sessionWindow"
"""In the metadata of the column that is a session window."""

_OF_A_WINDOW = {
    *("Alias", "CreateNamedStruct", "Literal", "KnownNullable", "PreciseTimestampConversion", "AttributeReference"),
    *("Subtract", "Add", "Multiply", "Remainder", "CaseWhen", "LessThan", "Cast"),
}
"""What Spark makes a window of a column of. Over anything else it has no watermark."""


class Aggregation:
    """Decodes raw records, calls the pipeline's function on the good ones, and encodes its groups.

    Those that are bad, or too late for their window, are found in the same records a second time, by `aside`.
    """

    def __init__(self, spark: SparkSession, pipeline: Pipeline, catalog: Catalog, schema_id: int) -> None:
        """`schema_id` is that of the target's schema. Raises PipelineUnfit, which says what to change."""
        target = catalog.topic(pipeline.target)
        derivation = target.derivation
        assert derivation is not None and derivation.late_after_minutes is not None
        self._pipeline = pipeline
        self._occurred_at_of = {name: catalog.topic(name).occurred_at for name in pipeline.sources}
        self._schema, self._schema_id = catalog.schema(pipeline.target), schema_id
        self._key, self._occurred_at = target.key, target.occurred_at
        self._late_after = derivation.late_after_minutes
        found = _check(spark, pipeline, catalog)
        self._kinds, self._slide, self._length = found.kinds, found.slide, found.length
        told = [] if derivation.watermark_of == "slower" else [derivation.watermark_of]
        self.plan = state_plan(catalog, found.used, [found.grouping, self._late_after, pipeline.output, *told])
        """A hash of what the state depends on: how events are read, filtered and grouped, and which functions of the groups are needed."""

    @property
    def has_overlapping_windows(self) -> bool:
        """Whether an event may belong to several."""
        return self._slide is not None and self._length > self._slide

    def stream(self, reads: Sequence[Read]) -> DataFrame:
        """Streams of raw records, one of each topic, to one of groups, as the function names their fields."""
        frames = []
        for (topic, occurred_at), read in zip(self._occurred_at_of.items(), reads, strict=True):
            good = self._decoded(topic, read).where(F.col(REASON).isNull()).select(self._kinds[topic].fieldNames())
            frames.append(good.withWatermark(occurred_at, f"{self._late_after + read.more_minutes} minutes"))
        made = called(self._pipeline, *frames)
        check_watermarks(self._pipeline, made)
        return made

    def _decoded(self, topic: str, read: Read) -> DataFrame:
        return without_future(events(read.raw, read.schemas), self._occurred_at_of[topic], self._late_after)

    def to_rows(self, made: DataFrame) -> DataFrame:
        """Groups to rows of `stateful_rows`."""
        made = made.withColumn(FINAL, F.lit(self._pipeline.output == "append"))
        return stateful_rows(made, self._schema, self._schema_id, F.col(str(self._key)), self._occurred_at)

    def aside(self, topic: str, schemas: WriterSchemas, watermark_ms: int) -> ToRows:
        """Raw records of one of the topics to rows of `spark.sinks.kafka.sink.outgoing`: the bad ones, and those whose window had ended by the watermark, milliseconds
        since 1970, with the reason LATE.
        """
        watermark = F.timestamp_millis(F.lit(watermark_ms))

        def rows(raw: DataFrame) -> DataFrame:
            spark, decoded = raw.sparkSession, self._decoded(topic, Read(raw, schemas))
            decoded = decoded.withColumn(_OCCURRED_AT, F.col(self._occurred_at_of[topic]))
            frames = _empty(spark, self._kinds) | {topic: decoded.select(self._kinds[topic].fieldNames())}
            node = aggregation(_of_each(self._pipeline(*frames.values()), frames)[topic])
            windowed = carrying(frame_of(spark, node.child()), frames[topic], decoded, REASON)
            if COPY in windowed.columns:
                # Of a bad record, whose windows are null, each window is a copy.
                windowed = windowed.where(F.col(REASON).isNull() | (F.col(COPY) == 0))
            window, occurred_at = F.col(_window(node).name()), F.col(_OCCURRED_AT)
            is_over = F.col(REASON).isNull() & (window["end"] <= watermark)
            if self._slide is None:
                text = F.concat(F.lit("its own session, which ends at "), told(window["end"]), F.lit(", is over"))
                return _set_aside(windowed, is_over, window["end"], window["end"], watermark, text)
            slide = F.expr(f"INTERVAL {self._slide} MICROSECONDS")
            # Of several that are over, the last one tells of all.
            is_late = is_over & ((window["start"] + slide > occurred_at) | (window["end"] + slide > watermark))
            earlier = F.ceil((F.unix_micros(window["end"]) - F.unix_micros(occurred_at)) / self._slide) - 1
            first = F.timestamp_micros(F.unix_micros(window["end"]) - earlier * self._slide)
            text = F.concat(
                F.lit("its windows that end from "), told(first), F.lit(" to "), told(window["end"]), F.lit(" are over")
            )
            return _set_aside(windowed, is_late, first, window["end"], watermark, text)

        return rows


def _set_aside(
    windowed: DataFrame, is_late: Column, first: Column, last: Column, watermark: Column, text: Column
) -> DataFrame:
    """Rows of `outgoing`: those that have a reason, and those that are late for the windows that end from `first` to `last`, as the `text`
    says.
    """
    late = F.concat(text, F.lit(": the watermark was "), told(watermark))
    missed = F.struct(_exact(first).alias("first"), _exact(last).alias("last"), _exact(watermark).alias("watermark"))
    marked = windowed.withColumns(
        {
            "__error": F.when(is_late, late).otherwise(F.col("__error")),
            REASON: F.when(is_late, LATE).otherwise(F.col(REASON)),
            "__missed": F.when(is_late, missed),
        }
    ).where(F.col(REASON).isNotNull())
    return outgoing(marked, F.lit(None).cast("binary"), F.lit(""))


@dataclass(frozen=True, slots=True)
class _Found:
    """By topic the fields that the function gets, and those of which it groups; how, in words; microseconds between two windows, None of sessions, and from the
    begin of one to its end.
    """

    kinds: Mapping[str, StructType]
    used: dict[str, Collection[str]]
    grouping: list[Any]
    slide: int | None
    length: int


def _empty(spark: SparkSession, kinds: Mapping[str, StructType]) -> dict[str, DataFrame]:
    """By topic a frame without rows, as the function gets it."""
    return {topic: spark.createDataFrame(spark.sparkContext.emptyRDD(), kind) for topic, kind in kinds.items()}


def _of_each(made: DataFrame, given: Mapping[str, DataFrame]) -> dict[str, DataFrame]:
    """By topic what is made of its records alone. Raises NotRowByRow."""
    if len(given) == 1:
        return dict.fromkeys(given, made)
    frames = [*given.values()]
    return {topic: only_of(made, frames, number) for number, topic in enumerate(given)}


def _check(spark: SparkSession, pipeline: Pipeline, catalog: Catalog) -> _Found:
    """Raises PipelineUnfit."""
    check_source(pipeline, catalog)
    target = catalog.topic(pipeline.target)
    if pipeline.lookups:
        raise PipelineUnfit(f"{pipeline.name} has lookups and aggregates, which it can't: leave the lookups out")
    if target.key is None:
        raise PipelineUnfit(
            f"{pipeline.name} aggregates, and {target.name} has no key: set `key` in its contract to the field that names a group"
        )
    kinds = {topic: event_type(spark, catalog.schema(topic)) for topic in pipeline.sources}
    given = _empty(spark, kinds)
    made = called(pipeline, *given.values())
    check_names(pipeline, [name for name in made.columns if name != FINAL])
    check_wanted(spark, pipeline, catalog, pipeline.target, made, (FINAL,))
    nodes_of, key = {}, target.key
    for topic, one in _united(pipeline, made, given).items():
        nodes_of[topic] = _check_steps(pipeline, one, given[topic], catalog.topic(topic), key, united(made))
    check_repeated(pipeline, made, *given.values())
    check_types(pipeline, catalog, pipeline.target, (FINAL,))
    node = nodes_of[pipeline.source]
    come = {topic: what_comes_to(each, given[topic]) for topic, each in nodes_of.items()}
    # Of one topic its steps, of two those of each.
    before = [steps for _, steps in come.values()] if len(come) > 1 else come[pipeline.source][1]
    grouping = [kept_aggregates(made, node), said(node), *before]
    slide, length = (None, 0) if _is_session(_window(node)) else _slide_and_length(spark, pipeline, catalog, kinds)
    return _Found(kinds, {topic: used for topic, (used, _) in come.items()}, grouping, slide, length)


def _united(pipeline: Pipeline, made: DataFrame, given: Mapping[str, DataFrame]) -> dict[str, DataFrame]:
    """As `_of_each`. Raises PipelineUnfit."""
    try:
        return _of_each(made, given)
    except NotRowByRow as error:
        raise PipelineUnfit(
            f"{pipeline.name} reads {' and '.join(given)}, and has {error}, and the contract of {pipeline.target} says records: aggregate: choose from each "
            "of the two frames the columns that both have, unite them once by unionByName, and group what comes of it"
        ) from error


def _slide_and_length(
    spark: SparkSession, pipeline: Pipeline, catalog: Catalog, kinds: Mapping[str, StructType]
) -> tuple[int, int]:
    """Microseconds between the begins of two windows, and from the begin of one to its end, found out from those that Spark tries for one instant, whether they hold it or not."""
    topic, occurred_at = pipeline.source, catalog.topic(pipeline.source).occurred_at
    fields = [F.lit(None).cast(field.dataType).alias(field.name) for field in kinds[topic] if field.name != occurred_at]
    instant = F.timestamp_seconds(F.lit(0)).alias(occurred_at)
    whole = spark.range(1).select(*fields, instant, F.lit("whatever is filtered").alias(REASON))
    frames = _empty(spark, kinds) | {topic: whole.select(kinds[topic].fieldNames())}
    node = aggregation(_of_each(pipeline(*frames.values()), frames)[topic])
    found = carrying(frame_of(spark, node.child()), frames[topic], whole, REASON).select(f"{_window(node).name()}.*")
    bounds = found.select(*[F.unix_micros(name).alias(name) for name in ("start", "end")]).toArrow().to_pylist()
    starts, length = sorted(each["start"] for each in bounds), bounds[0]["end"] - bounds[0]["start"]
    return starts[1] - starts[0] if len(starts) > 1 else length, length


def _check_steps(
    pipeline: Pipeline, made: DataFrame, given: DataFrame, source: TopicContract, key: str, united: Mapping[str, int]
) -> Any:
    """The aggregation of what is made of one topic's records alone; `united` are the columns of both. Raises PipelineUnfit."""
    try:
        found = aggregation(made)
    except NotRowByRow as error:
        raise PipelineUnfit(
            f"{pipeline.name} has {error}, and the contract of {pipeline.target} says records: aggregate: group once"
        ) from error
    steps = list(nodes(made))
    kinds = [node.nodeName() for node in steps]
    if FILTER in kinds[: kinds.index(found.nodeName())]:
        raise PipelineUnfit(
            f"{pipeline.name} filters its groups: one that was written, and meets the condition no more, would keep its record, and the audit would "
            "take those that were left out for lost. Filter the records before they are grouped, or write each group with a field that says whether it meets the condition"
        )
    for node in steps:
        if node.nodeName() not in (*PASSING_ON, FILTER, EXPAND, "Aggregate", "LogicalRDD", "LocalRelation"):
            raise PipelineUnfit(
                f"{pipeline.name} has a step {node.nodeName()}, which an aggregate can't have yet: filter, compute and group by a window"
            )
        check_expressions(pipeline, node)
        for each in expressions(node):
            check_order(pipeline, each)
    _check_window(pipeline, found, source, column_id(given, source.occurred_at))
    check_groups(pipeline, found)
    # Of two topics a column may be a constant in either, and yet tell groups apart.
    _check_key(pipeline, found, made, united or {name: column_id(given, name) for name in given.columns}, key)
    return found


def check_groups(pipeline: Pipeline, node: Any) -> None:
    """Raises PipelineUnfit if which of several texts names a group depends on the order of the records."""
    if any(_is_collated(type_of(each)) for each in items(node.groupingExpressions())):
        raise PipelineUnfit(
            f"{pipeline.name} groups by a text whose collation takes different ones for equal, and which of them names the group depends on the "
            "order of the records: collate it by UTF8_BINARY, in lower case if that is meant"
        )


def _check_key(pipeline: Pipeline, node: Any, made: DataFrame, columns: Mapping[str, int], key: str) -> None:
    """Whether the key is made from every field that the function groups by: of two groups with one key, one would hide the other."""
    grouping = {
        column.exprId().id()
        for each in items(node.groupingExpressions())
        for column in items(each.references().toSeq())
    }
    wanted, found = made_from(node.child(), grouping), made_from(analyzed(made), {column_id(made, key)})
    if lacking := [name for name, number in columns.items() if number in wanted - found]:
        raise PipelineUnfit(
            f"{pipeline.name} groups by {', '.join(lacking)}, too, and the key {key} is not made from it, so that two groups may have one key: "
            "add it to the key, or take F.max of it instead of grouping by it"
        )


def check_order(pipeline: Pipeline, each: Any) -> None:
    """Raises PipelineUnfit if a value depends on the order of the records, which is another one each time: a batch that runs again must give the same
    rows.
    """
    if kind_of(each) != "AggregateExpression":
        return
    function = each.aggregateFunction()
    kind, inputs = kind_of(function), [type_of(child) for child in items(function.children())]
    names = {found.typeName() for found in inputs}
    if each.isDistinct() or not (kind in _COUNTING or names <= {*_ADDING.get(kind, ())}):
        raise PipelineUnfit(
            f"{pipeline.name}: {each} may depend on the order of the records, which is another one when a batch runs again: use count, min, "
            "max, percentile, approx_count_distinct, sums of whole numbers or decimals, or means of ints or decimals"
        )
    if kind in _ADDING and _mode(function) == _TRY:
        raise PipelineUnfit(
            f"{pipeline.name}: {each} is null where a sum overflows on its way, which depends on the order of the records: use sum, whose whole "
            "numbers wrap, or avg"
        )
    if kind in _ADDING and any(isinstance(found, DecimalType) and found.precision > _DIGITS for found in inputs):
        raise PipelineUnfit(
            f"{pipeline.name}: {each} is null where a sum overflows on its way, which depends on the order of the records: cast what is added to a "
            f"decimal of {_DIGITS} digits at most, to which Spark adds ten for the sum"
        )
    if kind in _CHOOSING and any(map(_is_collated, inputs)):
        raise PipelineUnfit(
            f"{pipeline.name}: {each} is of texts whose collation takes different ones for equal, and which of them it is depends on the order "
            "of the records: collate them by UTF8_BINARY"
        )


def _mode(function: Any) -> str:
    """What becomes of an overflow."""
    return str((function.evalContext() if kind_of(function) == "Sum" else function).evalMode().toString())


def _is_collated(kind: DataType) -> bool:
    return " collate " in kind.simpleString()


def _check_window(pipeline: Pipeline, node: Any, source: TopicContract, number: int) -> None:
    """`number` is the id of the column with the time of the events, which alone has a watermark."""
    occurred_at = source.occurred_at
    window, cure = _window(node), f'group by F.window("{occurred_at}", …)'
    if pipeline.second is not None:
        cure = f'choose {occurred_at} of {source.name} as it is, under a name that both frames have, such as "at", and group by F.window("at", …)'
    if window is None:
        raise PipelineUnfit(f"{pipeline.name} groups by no window, so its state would grow for ever: {cure}, too")
    made = made_as(node, window.exprId().id())
    if _is_session(window):
        return _check_session(pipeline, made, number)
    kinds = {kind_of(part) for each in made for part in tree(each)}
    of = {renamed_of(node, column.exprId().id()) for each in made for column in items(each.references().toSeq())}
    if of != {number} or kinds - _OF_A_WINDOW:
        raise PipelineUnfit(
            f"{pipeline.name} groups by a window that is not over {occurred_at} alone, the time of its events by the contract of "
            f"{source.name}, so it would never end: {cure}, in one step with the grouping"
        )


def _check_session(pipeline: Pipeline, made: list[Any], number: int) -> None:
    """The gap may be any expression over one record."""
    if pipeline.second is not None:
        raise PipelineUnfit(
            f"{pipeline.name} groups the records of two topics by sessions, which the audit could not count again: group by F.window, or by the sessions of "
            "one topic"
        )
    if pipeline.output != "append":
        raise PipelineUnfit(
            f"{pipeline.name} groups by sessions, and its output is {pipeline.output}: a record can join two sessions that were written, and "
            'Spark has no way to take one back, so it writes them when they are over: output="append"'
        )
    starts = [items(part.children())[1] for each in made for part in tree(each) if kind_of(part) == "CreateNamedStruct"]
    kinds = {kind_of(part) for each in starts for part in tree(each)}
    of = {column.exprId().id() for each in starts for column in items(each.references().toSeq())}
    if of != {number} or kinds - {"KnownNullable", "PreciseTimestampConversion", "AttributeReference"}:
        raise PipelineUnfit(
            f"{pipeline.name} groups by sessions that are not over the time of its events by the contract of {pipeline.source}, as it is, so "
            "they would never end: group by F.session_window of that field, in one step with the grouping"
        )


def _is_session(window: Any) -> bool:
    return bool(window.metadata().contains(_SESSION))


def _window(node: Any) -> Any:
    """The column of an aggregation that is the window of time which it groups by."""
    for each in items(node.groupingExpressions()):
        kind = json.loads(each.dataType().json())
        if isinstance(kind, dict) and [field["name"] for field in kind.get("fields", ())] == ["start", "end"]:
            return each
    return None


def _exact(instant: Column) -> Column:
    return F.date_format(instant, "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'")

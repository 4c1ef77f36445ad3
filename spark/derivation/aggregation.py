"""What a pipeline makes of many records: `Aggregation`."""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from contracts.definitions.catalog import Catalog
from contracts.records.limits import DERIVED_BYTES
from spark.derivation.fitness import called, check_source, check_wanted, event_type
from spark.derivation.steps import check_expression, check_names
from spark.pipeline import Pipeline
from spark.records.decode import events
from spark.records.schemas import WriterSchemas, never_null
from spark.records.wire import wire_value
from spark.runtime.errors import PipelineUnfit
from spark.runtime.internals.plans import (
    FILTER,
    PASSING_ON,
    NotRowByRow,
    aggregation,
    carrying,
    column_id,
    expressions,
    frame_of,
    items,
    kind_of,
    nodes,
)
from spark.sinks.kafka.sink import LATE, ToRows, outgoing

REASON = "__reason"
"""The column by whose filter bad records are left out of a stream."""

FINAL = "is_final"
"""The platform's field of an aggregate: whether nothing can change it any more."""

_AHEAD = "1 HOUR"
"""As far as the brokers let the time of a record be ahead of theirs, and less than any event may be late."""

_IN_ORDER = ("First", "Last", "CollectList", "ListAgg", "AnyValue", "ApproximatePercentile")
_SKETCHES = ("ApproxTopK", "KllSketch", "HllSketch", "ThetaSketch", "BloomFilter")
_ADDING = ("Sum", "Average", "StddevPop", "StddevSamp", "VariancePop", "VarianceSamp", "Skewness", "Kurtosis", "Corr")
_FLOATING = ("float", "double")


class Aggregation:
    """Decodes raw records, calls the pipeline's function on the good ones, and encodes its groups.

    Those that are bad, or too late for their window, are found in the same records a second time, by `aside`.
    """

    def __init__(self, spark: SparkSession, pipeline: Pipeline, catalog: Catalog, schema_id: int) -> None:
        """`schema_id` is that of the target's schema. Raises PipelineUnfit, which says what to change."""
        source, target = catalog.topic(pipeline.source), catalog.topic(pipeline.target)
        assert target.derivation is not None and target.derivation.late_after_minutes is not None
        self._pipeline, self._source = pipeline, source
        self._schema, self._schema_id = catalog.schema(pipeline.target), schema_id
        self._key, self._occurred_at = target.key, target.occurred_at
        self._late_after = f"{target.derivation.late_after_minutes} minutes"
        self._names = _check(spark, pipeline, catalog)

    def groups(self, raw: DataFrame, schemas: WriterSchemas) -> DataFrame:
        """A stream of raw records to one of groups, as the function names their fields."""
        # Of a streaming query this is the time of the batch, which its checkpoint keeps.
        decoded = self._without_future(events(raw, schemas), F.current_timestamp())
        good = decoded.where(F.col(REASON).isNull()).select(self._names)
        return self._pipeline(good.withWatermark(self._source.occurred_at, self._late_after))

    def _without_future(self, decoded: DataFrame, now: Column) -> DataFrame:
        """An event from the future is bad: by it alone all others would be late."""
        occurred_at = F.col(self._source.occurred_at)
        is_ahead = F.col(REASON).isNull() & (occurred_at > now + F.expr(f"INTERVAL {_AHEAD}"))
        error = F.concat(
            F.lit(f"{self._source.occurred_at} is "), _text(occurred_at), F.lit(f", more than {_AHEAD} after the time of its batch, "), _text(now)
        )  # fmt: skip
        return decoded.withColumns(
            {
                REASON: F.when(is_ahead, "FromTheFuture").otherwise(F.col(REASON)),
                "__error": F.when(is_ahead, error).otherwise(F.col("__error")),
            }
        )

    def to_rows(self, made: DataFrame) -> DataFrame:
        """Groups to `key` binary, `value` binary, `ce_time` string and `fault` string: why a group can't be a record, empty if it can."""
        made = made.withColumn(FINAL, F.lit(self._pipeline.output == "append"))
        lacking = F.concat_ws(", ", *[F.when(F.col(name).isNull(), name) for name in never_null(self._schema)])
        value = F.when(lacking == "", wire_value(self._schema, self._schema_id))
        time = F.date_format(self._occurred_at, "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'")
        rows = made.select(
            F.col(str(self._key)).cast("binary").alias("key"),
            value.alias("value"),
            time.alias("ce_time"),
            lacking.alias("lacking"),
        )
        size = F.octet_length("key") + F.octet_length("value")
        fault = F.when(F.col("lacking") != "", F.concat(F.lit("the schema has no null for "), "lacking")).when(
            size > DERIVED_BYTES,
            F.concat(F.lit("key and value have "), size, F.lit(f" bytes, and at most {DERIVED_BYTES} fit")),
        )
        return rows.withColumn("fault", F.coalesce(fault, F.lit(""))).drop("lacking")

    def aside(self, schemas: WriterSchemas, watermark_ms: int, batch_ms: int) -> ToRows:
        """Raw records to rows of `spark.sinks.kafka.sink.outgoing`: the bad ones, and those whose window had ended by the watermark, with the
        reason LATE. The watermark and the time of the batch are milliseconds since 1970.
        """
        watermark, now = (F.timestamp_millis(F.lit(each)) for each in (watermark_ms, batch_ms))

        def rows(raw: DataFrame) -> DataFrame:
            decoded = self._without_future(events(raw, schemas), now)
            given = decoded.select(self._names)
            node = aggregation(self._pipeline(given))
            windowed = carrying(frame_of(raw.sparkSession, node.child()), given, decoded, REASON)
            window = F.col(str(_window(node)))
            is_late = F.col(REASON).isNull() & (window["end"] <= watermark)
            late = F.concat(
                F.lit("the window from "), _text(window["start"]), F.lit(" to "), _text(window["end"]),
                F.lit(" had ended for good: the watermark was "), _text(watermark),
            )  # fmt: skip
            told = windowed.withColumns(
                {
                    "__error": F.when(is_late, late).otherwise(F.col("__error")),
                    REASON: F.when(is_late, LATE).otherwise(F.col(REASON)),
                }
            ).where(F.col(REASON).isNotNull())
            return outgoing(told, F.lit(None).cast("binary"), F.lit(""))

        return rows


def _check(spark: SparkSession, pipeline: Pipeline, catalog: Catalog) -> list[str]:
    """The fields that the function gets. Raises PipelineUnfit."""
    check_source(pipeline, catalog)
    target = catalog.topic(pipeline.target)
    if pipeline.lookups:
        raise PipelineUnfit(f"{pipeline.name} has lookups and aggregates: look up in a pipeline of its own, before")
    if target.key is None:
        raise PipelineUnfit(
            f"{pipeline.name} aggregates, and {target.name} has no key: name the field that names a group"
        )
    schema = catalog.schema(pipeline.source)
    given = spark.createDataFrame(spark.sparkContext.emptyRDD(), event_type(spark, schema))
    made = called(pipeline, given)
    check_names(pipeline, [name for name in made.columns if name != FINAL])
    check_wanted(spark, pipeline, catalog, made, (FINAL,))
    _check_steps(pipeline, made, given, catalog.topic(pipeline.source).occurred_at)
    return given.columns


def _check_steps(pipeline: Pipeline, made: DataFrame, given: DataFrame, occurred_at: str) -> None:
    try:
        found = aggregation(made)
    except NotRowByRow as error:
        raise PipelineUnfit(
            f"{pipeline.name} has {error}, and the contract of {pipeline.target} says records: aggregate: group once"
        ) from error
    for node in nodes(made):
        if node.nodeName() == "Expand":
            raise PipelineUnfit(
                f"{pipeline.name} has windows that overlap, which an aggregate can't have yet: leave the slide out"
            )
        if node.nodeName() not in (*PASSING_ON, FILTER, "Aggregate", "LogicalRDD", "LocalRelation"):
            raise PipelineUnfit(
                f"{pipeline.name} has a step {node.nodeName()}, which an aggregate can't have yet: filter, compute and group by a window"
            )
        for each in expressions(node):
            check_expression(pipeline, each)
            _check_order(pipeline, each)
    _check_window(pipeline, found, occurred_at, column_id(given, occurred_at))


def _check_order(pipeline: Pipeline, each: Any) -> None:
    """Whether a value depends on the order of the records, which is another one each time: a batch that runs again must give the same rows."""
    kind = kind_of(each)
    inputs = [str(child.dataType().typeName()) for child in items(each.children())] if kind in _ADDING else []
    if kind in _IN_ORDER or kind.startswith(_SKETCHES) or set(inputs).intersection(_FLOATING):
        raise PipelineUnfit(
            f"{pipeline.name}: {each} depends on the order of the records, which is another one when a batch runs again: use count, min, "
            "max, percentile, or sums and means of whole numbers or decimals"
        )


def _check_window(pipeline: Pipeline, node: Any, occurred_at: str, number: int) -> None:
    """`number` is the id of the column with the time of the events, which alone has a watermark."""
    name, cure = _window(node), f'group by F.window("{occurred_at}", …)'
    if name is None:
        raise PipelineUnfit(f"{pipeline.name} groups by no window, so its state would grow for ever: {cure}, too")
    made = [each for each in items(node.child().expressions()) if kind_of(each) == "Alias" and each.name() == name]
    if {column.exprId().id() for each in made for column in items(each.references().toSeq())} != {number}:
        raise PipelineUnfit(
            f"{pipeline.name} groups by a window that is not over {occurred_at} alone, the time of its events by the contract of "
            f"{pipeline.source}, so it would never end: {cure}, in one step with the grouping"
        )


def _window(node: Any) -> str | None:
    """The column of an aggregation that is the window of time which it groups by."""
    for each in items(node.groupingExpressions()):
        kind = json.loads(each.dataType().json())
        if isinstance(kind, dict) and [field["name"] for field in kind.get("fields", ())] == ["start", "end"]:
            return str(each.name())
    return None


def _text(instant: Column) -> Column:
    return F.date_format(instant, "yyyy-MM-dd'T'HH:mm:ss'Z'")

"""What a pipeline lets through once, though producers send it again: `Deduplication`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from contracts.checks.schema_rules import NAMING_CURE, naming_fault
from contracts.definitions.catalog import Catalog
from spark.derivation.fitness import (
    called,
    carried,
    check_carried,
    check_key,
    check_repeated,
    check_source,
    check_types,
    check_wanted,
    event_type,
)
from spark.derivation.stateful.event_time import REASON, check_watermarks, late_or_bad, watermarked, without_future
from spark.derivation.stateful.state_plan import state_plan
from spark.derivation.stateful.stateful_rows import Read, coordinate, key_of, stateful_rows
from spark.derivation.steps import check_expressions, check_names
from spark.pipeline import Pipeline
from spark.records.decode import events
from spark.records.schemas import WriterSchemas
from spark.runtime.errors import PipelineUnfit
from spark.runtime.internals.joins import WATERMARK, all_nodes, grafted
from spark.runtime.internals.plans import (
    DEDUPLICATION,
    FILTER,
    PASSING_ON,
    carrying,
    column_id,
    frame_of,
    items,
    said,
    sorted_before,
    unchanged,
    what_comes_to,
)
from spark.sinks.kafka.sink import ToRows

PLACE = "__place"
"""The column with partition and offset of the raw record that a row is made of."""

_STEP = "dropDuplicatesWithinWatermark"
_ENDLESS = {"Deduplicate": "dropDuplicates", "Distinct": "distinct"}
"""Spark's steps that keep every event for ever."""


class Deduplication:
    """Decodes raw records, calls the pipeline's function on the good ones, and encodes the first one of each event.

    Those that are bad, or behind the watermark, are found in the same records a second time, by `aside`.
    """

    def __init__(self, spark: SparkSession, pipeline: Pipeline, catalog: Catalog, schema_id: int) -> None:
        """`schema_id` is that of the target's schema. Raises PipelineUnfit, which says what to change."""
        check_source(pipeline, catalog)
        self._pipeline = pipeline
        self._source, self._target = catalog.topic(pipeline.source), catalog.topic(pipeline.target)
        derivation, schema = self._target.derivation, catalog.schema(pipeline.source)
        assert derivation is not None and derivation.late_after_minutes is not None
        self._late_after = derivation.late_after_minutes
        self._schema, self._schema_id = catalog.schema(pipeline.target), schema_id
        kind = event_type(spark, schema)
        self._names = kind.fieldNames()
        given = watermarked(spark, kind, self._source.occurred_at, self._late_after)
        self._wanted, used, depends_on = _check(spark, pipeline, catalog, given)
        # Events of one key may lie in several partitions of the state, each of which would write by itself.
        self._shared_out_by = self._target.key if self._target.named_by != (self._target.key,) else None
        self.plan = state_plan(catalog, {pipeline.source: used}, [depends_on, self._late_after, self._shared_out_by])
        """A hash of what the state depends on: how events are read and filtered, which fields name one, for how long it is remembered, and which task
        writes it: a batch that was cut off must be shared out as it was.
        """

    def stream(self, reads: Sequence[Read]) -> DataFrame:
        """A stream of raw records to one of what the function makes of the first one of each event, with their places."""
        (read,) = reads
        record = F.col("__record")
        place = F.struct(record["partition"], record["offset"]).alias(PLACE)
        good = self._decoded(read).where(F.col(REASON).isNull()).select(*self._names, place)
        whole = good.withWatermark(self._source.occurred_at, f"{self._late_after} minutes")
        given = whole.select(self._names)
        made = called(self._pipeline, given)
        check_watermarks(self._pipeline, made)
        made = grafted(made.select(self._wanted), [(given, whole)])
        # Rows of a shuffle come in any order, and a batch that runs again must let the same ones through.
        return sorted_before(made, DEDUPLICATION, PLACE)

    def _decoded(self, read: Read) -> DataFrame:
        return without_future(events(read.raw, read.schemas), self._source.occurred_at, self._late_after)

    def to_rows(self, made: DataFrame) -> DataFrame:
        """Events to rows of `stateful_rows`. The id is the coordinate of the raw record."""
        record_id, key = coordinate(self._source.name, F.col(PLACE)), key_of(self._target)
        if self._shared_out_by is not None:
            made = made.repartition(key).sortWithinPartitions(PLACE)
        return stateful_rows(made, self._schema, self._schema_id, key, self._target.occurred_at, record_id)

    def aside(self, topic: str, schemas: WriterSchemas, watermark_ms: int) -> ToRows:
        """Raw records to rows of `spark.sinks.kafka.sink.outgoing`: the bad ones, and those that a filter lets through and whose event is not newer
        than the watermark, milliseconds since 1970, with the reason LATE.
        """

        def rows(raw: DataFrame) -> DataFrame:
            decoded = self._decoded(Read(raw, schemas))
            given = decoded.select(self._names)
            below = frame_of(raw.sparkSession, _step(self._pipeline(given)).child())
            found = carrying(below, given, decoded, REASON)
            return late_or_bad(found, F.col(self._source.occurred_at), watermark_ms)

        return rows


def _step(made: DataFrame) -> Any:
    (found,) = [node for node in all_nodes(made) if node.nodeName() == DEDUPLICATION]
    return found


def _check(
    spark: SparkSession, pipeline: Pipeline, catalog: Catalog, given: DataFrame
) -> tuple[list[str], frozenset[str], list[list[tuple[str, list[int]]]]]:
    """The fields that are made; of which the state depends on, and how, in words. Raises PipelineUnfit."""
    if pipeline.lookups:
        raise PipelineUnfit(
            f"{pipeline.name} has lookups, and a pipeline that lets each event through once can't have them: leave them out"
        )
    _check_names(pipeline, catalog)
    made = called(pipeline, given)
    check_names(pipeline, made.columns)
    wanted = [field.name for field in check_wanted(spark, pipeline, catalog, pipeline.target, made, ())]
    node = _check_steps(pipeline, made)
    check_repeated(pipeline, made, given)
    _check_what_comes_to_the_step(pipeline, catalog, node, given)
    kept = unchanged(made, given)
    check_key(pipeline, catalog, pipeline.target)
    check_carried(pipeline, {*wanted}.intersection(given.columns), kept)
    check_types(pipeline, catalog, pipeline.target, carried(catalog, pipeline.source, pipeline.target, kept))
    used, before = what_comes_to(node, given, column_id(given, catalog.topic(pipeline.source).occurred_at))
    return wanted, used, [said(node), *before]


def _check_names(pipeline: Pipeline, catalog: Catalog) -> None:
    """Whether the fields that name an event can: events whose names are null, or a default, would be one."""
    target, schema = catalog.topic(pipeline.target), catalog.parsed_schema(pipeline.source)
    for name in target.named_by:
        if (why := naming_fault(schema, name)) is not None:
            raise PipelineUnfit(
                f"{target.name} has events that are named by {name}, which in {pipeline.source} is {why}: {NAMING_CURE}"
            )
    if target.occurred_at != (occurred_at := catalog.topic(pipeline.source).occurred_at):
        raise PipelineUnfit(
            f"{target.name} has events of {target.occurred_at}, and {pipeline.source} of {occurred_at}: an event keeps its time, so write "
            f"occurred_at: {occurred_at}"
        )


def _check_steps(pipeline: Pipeline, made: DataFrame) -> Any:
    """The step that lets each event through once."""
    found = list(all_nodes(made))
    for node in found:
        if (endless := _ENDLESS.get(node.nodeName())) is not None:
            raise PipelineUnfit(
                f"{pipeline.name} calls {endless}, which keeps every event for ever: use {_STEP}, with the fields of named_by"
            )
    kinds = [node.nodeName() for node in found]
    if kinds.count(DEDUPLICATION) != 1:
        raise PipelineUnfit(
            f"{pipeline.name} calls {_STEP} {kinds.count(DEDUPLICATION)} times, and the contract of {pipeline.target} says records: distinct: call "
            "it once"
        )
    for node in found:
        if node.nodeName() not in (*PASSING_ON, FILTER, DEDUPLICATION, "LogicalRDD", "LocalRelation"):
            raise PipelineUnfit(
                f"{pipeline.name} has a step {node.nodeName()}, which {_STEP} can't have beside it: filter, and add, choose and rename columns; do what "
                "needs several rows where the topic is read"
            )
        check_names(pipeline, [str(each.name()) for each in items(node.output())])
        check_expressions(pipeline, node)
    if FILTER in kinds[: kinds.index(DEDUPLICATION)]:
        raise PipelineUnfit(
            f"{pipeline.name} filters behind {_STEP}, where of two records of an event the first alone decides, and is remembered even if it is left "
            "out: filter before it"
        )
    return found[kinds.index(DEDUPLICATION)]


def _check_what_comes_to_the_step(pipeline: Pipeline, catalog: Catalog, node: Any, given: DataFrame) -> None:
    """Whether it is given the names and the time of an event as they were sent."""
    named_by, occurred_at = catalog.topic(pipeline.target).named_by, catalog.topic(pipeline.source).occurred_at
    output = items(node.child().output())
    names = [str(each.name()) for each in output]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise PipelineUnfit(f"{pipeline.name} has {', '.join(twice)} twice before {_STEP}: give each a name of its own")
    keys = {str(each.name()): each.exprId().id() for each in items(node.keys())}
    if keys.keys() != {*named_by}:
        raise PipelineUnfit(
            f"{pipeline.name} tells events apart by {', '.join(sorted(keys))}, and the contract of {pipeline.target} says named_by: [{', '.join(named_by)}]: give "
            f"{_STEP} the same fields"
        )
    if changed := [name for name, number in keys.items() if number != column_id(given, name)]:
        raise PipelineUnfit(
            f"{pipeline.name} changes {', '.join(changed)} before {_STEP}: events are told apart by their fields as they were sent"
        )
    times = [each.exprId().id() for each in output if each.metadata().contains(WATERMARK)]
    if times != [column_id(given, occurred_at)] or occurred_at not in names:
        raise PipelineUnfit(
            f"{pipeline.name} does not bring {occurred_at}, the time of the events of {pipeline.source}, to {_STEP} once and under its name: keep it as "
            "it is, and compute other columns from it behind"
        )

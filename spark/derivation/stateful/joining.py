"""What a pipeline makes of the records of two topics: `Joining`."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from contracts.definitions.catalog import Catalog
from spark.derivation.fitness import (
    called,
    carried,
    check_repeated,
    check_source,
    check_types,
    check_wanted,
    event_type,
)
from spark.derivation.stateful.event_time import REASON, check_watermarks, late_or_bad, watermarked, without_future
from spark.derivation.stateful.state_plan import state_plan
from spark.derivation.stateful.stateful_rows import Read, key_of, stateful_rows
from spark.derivation.steps import check_expressions, check_names
from spark.pipeline import Pipeline
from spark.records.decode import events
from spark.records.schemas import WriterSchemas
from spark.runtime.errors import PipelineUnfit
from spark.runtime.internals.joins import (
    JOIN,
    OCCURRED_AT,
    OptimisedJoin,
    all_nodes,
    grafted,
    optimised_join,
)
from spark.runtime.internals.plans import FILTER, PASSING_ON, NotRowByRow, items, needed_of, unchanged
from spark.sinks.kafka.sink import ToRows

PLACES = ("__place", "__place_joined")
"""The columns with partition and offset of the raw records that a row is made of, `2/17`; the second is null where none was found."""
_KINDS = ("Inner", "LeftOuter")


class Joining:
    """Decodes raw records of two topics, calls the pipeline's function on the good ones, and encodes its pairs.

    Those that are bad, or behind the watermark, are found in the same records a second time, by `aside`.
    """

    def __init__(self, spark: SparkSession, pipeline: Pipeline, catalog: Catalog, schema_id: int) -> None:
        """`schema_id` is that of the target's schema. Raises PipelineUnfit, which says what to change."""
        check_source(pipeline, catalog)
        self._pipeline, self._target = pipeline, catalog.topic(pipeline.target)
        derivation = self._target.derivation
        assert derivation is not None and derivation.late_after_minutes is not None
        self._late_after = derivation.late_after_minutes
        told = [] if derivation.watermark_of == "slower" else [derivation.watermark_of]
        self._schema, self._schema_id = catalog.schema(pipeline.target), schema_id
        self._sources = {name: catalog.topic(name) for name in pipeline.sources}
        schemas = [catalog.schema(name) for name in pipeline.sources]
        kinds = [event_type(spark, schema) for schema in schemas]
        self._names = [kind.fieldNames() for kind in kinds]
        times = [topic.occurred_at for topic in self._sources.values()]
        given = [watermarked(spark, kind, at, self._late_after) for kind, at in zip(kinds, times, strict=True)]
        self._wanted, self._join = _check(spark, pipeline, catalog, *given)
        used = [needed_of(frame, side.steps, side.output) for frame, side in zip(given, self._join.sides, strict=True)]
        self.plan = state_plan(
            catalog, dict(zip(pipeline.sources, used, strict=True)), [self._join.told(), self._late_after, *told]
        )
        """A hash of what the state depends on: how events are read, filtered and joined, which of their fields are used, and which are their times."""

    def stream(self, reads: Sequence[Read]) -> DataFrame:
        """Streams of raw records of both topics to one of what the function makes, with their places."""
        frames = []
        for source, read, names, place in zip(self._sources, reads, self._names, PLACES, strict=True):
            record = F.col("__record")
            of = F.concat(record["partition"].cast("string"), F.lit("/"), record["offset"].cast("string"))
            good = self._decoded(source, read).where(F.col(REASON).isNull()).select(*names, of.alias(place))
            whole = good.withWatermark(
                self._sources[source].occurred_at, f"{self._late_after + read.more_minutes} minutes"
            )
            frames.append((whole.select(names), whole))
        made = called(self._pipeline, *[given for given, _ in frames])
        check_watermarks(self._pipeline, made)
        # What is not wanted is not kept in the state either.
        return grafted(made.select(self._wanted), frames)

    def _decoded(self, source: str, read: Read) -> DataFrame:
        return without_future(events(read.raw, read.schemas), self._sources[source].occurred_at, self._late_after)

    def to_rows(self, made: DataFrame) -> DataFrame:
        """Pairs to rows of `stateful_rows`. The id is the coordinate of the first topic's record, and behind a + that of the other, if there is one."""
        first, second = [
            F.concat(F.lit(f"{topic.name}/"), F.col(place))
            for topic, place in zip(self._sources.values(), PLACES, strict=True)
        ]
        both = F.concat(first, F.coalesce(F.concat(F.lit("+"), second), F.lit("")))
        key = key_of(self._target)
        return stateful_rows(made, self._schema, self._schema_id, key, self._target.occurred_at, both)

    def aside(self, topic: str, schemas: WriterSchemas, watermark_ms: int) -> ToRows:
        """Raw records of one of the topics to rows of `spark.sinks.kafka.sink.outgoing`: the bad ones, and those that a filter lets through and
        whose event is not newer than the watermark, milliseconds since 1970, with the reason LATE.
        """
        side = self._join.sides[list(self._sources).index(topic)]

        def rows(raw: DataFrame) -> DataFrame:
            found = side.over(self._decoded(topic, Read(raw, schemas)), REASON)
            return late_or_bad(found, F.col(OCCURRED_AT), watermark_ms)

        return rows


def _check(
    spark: SparkSession, pipeline: Pipeline, catalog: Catalog, left: DataFrame, right: DataFrame
) -> tuple[list[str], OptimisedJoin]:
    """The fields that are made, and the join. Raises PipelineUnfit."""
    if pipeline.lookups:
        raise PipelineUnfit(f"{pipeline.name} has lookups and joins, which it can't: leave the lookups out")
    made = called(pipeline, left, right)
    check_names(pipeline, made.columns)
    wanted = [field.name for field in check_wanted(spark, pipeline, catalog, pipeline.target, made, ())]
    _check_steps(pipeline, made)
    check_repeated(pipeline, made, left, right)
    exempt: set[str] = set()
    for name, frame in zip(pipeline.sources, (left, right), strict=True):
        exempt |= carried(catalog, name, pipeline.target, unchanged(made, frame))
    check_types(pipeline, catalog, pipeline.target, exempt)
    try:
        found = optimised_join(made.select(wanted), left, right)
    except NotRowByRow as error:
        raise PipelineUnfit(
            f"{pipeline.name} joins otherwise than it can run, {error}: join the two frames once, the first topic's on the left, and use what "
            "both have"
        ) from error
    _check_state(spark, pipeline, catalog, found)
    return wanted, found


def _check_steps(pipeline: Pipeline, made: DataFrame) -> None:
    nodes = list(all_nodes(made))
    joins = [node for node in nodes if node.nodeName() == JOIN]
    if len(joins) != 1:
        raise PipelineUnfit(
            f"{pipeline.name} has {len(joins)} joins, and the contract of {pipeline.target} says records: join: join the two frames once"
        )
    kind = str(joins[0].joinType().toString())
    kind = str(joins[0].joinType().tpe().toString()) if kind.startswith("UsingJoin") else kind
    if kind not in _KINDS:
        raise PipelineUnfit(
            f"{pipeline.name} joins {kind}, and a record that is made must name that of {pipeline.source}: use how=inner or how=left, with "
            "that topic's frame on the left"
        )
    for node in nodes:
        name = node.nodeName()
        if name not in (*PASSING_ON, FILTER, JOIN, "LogicalRDD", "LocalRelation"):
            raise PipelineUnfit(
                f"{pipeline.name} has a step {name}, which a join can't have beside it: filter, compute, and join once; do what needs "
                "several rows in a pipeline of its own, behind"
            )
        check_names(pipeline, [str(each.name()) for each in items(node.output())])
        check_expressions(pipeline, node)


def _check_state(spark: SparkSession, pipeline: Pipeline, catalog: Catalog, found: OptimisedJoin) -> None:
    """Whether the state forgets what can find no other record any more."""
    left, right = [catalog.topic(name).occurred_at for name in pipeline.sources]
    if not found.is_equal_in_keys():
        raise PipelineUnfit(
            f"{pipeline.name} joins by no field that is equal on both sides, so each record would be compared with all: add one to the condition"
        )
    if found.is_forgotten_by_key():
        raise PipelineUnfit(
            f"{pipeline.name} joins by the time of an event, {left} or {right}, that is equal to something else, and Spark would forget events "
            "that have pairs to come: compute something of either, and beside it keep the bounds, such as "
            f'F.date_trunc("HOUR", "{left}") == F.date_trunc("HOUR", "{right}")'
        )
    for side, name, time in zip(found.sides, pipeline.sources, (left, right), strict=True):
        if len(side.times) != 1:
            raise PipelineUnfit(
                f"{pipeline.name} has the time of the events of {name}, {time}, {len(side.times)} times before the join: select it once, under any name; "
                "compute other columns from it behind the join"
            )
    if not all(found.is_bounded(spark)):
        raise PipelineUnfit(
            f"{pipeline.name} does not say how far apart the times of two records may be, {left} and {right}, so its state would grow for ever: "
            f"add to the condition of the join, with bounds of its own, ({right} >= {left}) & ({right} <= "
            f'{left} + F.expr("INTERVAL 20 HOURS"))'
        )

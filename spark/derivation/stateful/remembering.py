"""What a pipeline makes of events by what those before them were: `Remembering`."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence

from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from contracts.definitions.catalog import Catalog
from spark.derivation.fitness import (
    called,
    carried,
    check_carried,
    check_repeated,
    check_source,
    check_types,
    check_wanted,
    event_type,
)
from spark.derivation.stateful.event_time import REASON, late_or_bad, without_future
from spark.derivation.stateful.memory_processor import READS, MemoryProcessor
from spark.derivation.stateful.state_plan import state_plan
from spark.derivation.stateful.stateful_rows import Read, coordinate, key_of, stateful_rows
from spark.derivation.steps import check_steps
from spark.lookups.dimensions import KINDS
from spark.memory import Memory
from spark.pipeline import Pipeline
from spark.records.decode import events
from spark.records.schemas import WriterSchemas
from spark.runtime.errors import PipelineUnfit
from spark.runtime.internals.plans import carrying, unchanged
from spark.sinks.kafka.sink import ToRows

PLACE = "__place"
"""The column with partition and offset of the raw record that a row is made of."""
_FAULT, _FIELDS = "__fault", "__fields"
_READABLE = ("boolean", "int", "bigint", "float", "double", "string")
"""Types of the fields that a memory can read, as Spark names them."""
_TELLING_APART = ("boolean", "int", "bigint", "string")
"""Types of the field by which events are remembered together."""


class Remembering:
    """Decodes raw records, counts the good ones into their memory in the order of their times, calls the pipeline's function on them, and encodes what it
    made.

    Those that are bad, or behind the watermark, are found in the same records a second time, by `aside`.
    """

    def __init__(self, spark: SparkSession, pipeline: Pipeline, catalog: Catalog, schema_id: int) -> None:
        """`schema_id` is that of the target's schema. Raises PipelineUnfit, which says what to change."""
        check_source(pipeline, catalog)
        self._pipeline = pipeline
        self._source, self._target = catalog.topic(pipeline.source), catalog.topic(pipeline.target)
        derivation, memory = self._target.derivation, pipeline.memory
        assert derivation is not None and derivation.late_after_minutes is not None and memory is not None
        _ship(memory.after)
        self._memory, self._late_after = memory, derivation.late_after_minutes
        self._schema, self._schema_id = catalog.schema(pipeline.target), schema_id
        kinds = event_type(spark, catalog.schema(pipeline.source))
        self._names = kinds.fieldNames()
        self._reads = _reads(pipeline, memory, kinds, self._source.occurred_at)
        self._processor = MemoryProcessor(memory, self._source.occurred_at, self._reads)
        self._wanted = _check(spark, pipeline, catalog, memory, kinds)
        told = [memory.of, [*memory.fields.items()], self._processor.forgets_micros, self._late_after]
        self.plan = state_plan(catalog, {pipeline.source: {memory.of, *self._reads}}, told)
        """A hash of what the state depends on: which events are remembered together, which of their fields are read, and how; what is kept, and for how long.
        The function `after` is not among it: what was remembered stays.
        """

    def stream(self, reads: Sequence[Read]) -> DataFrame:
        """A stream of raw records to one of what the function makes, with their places. Events wait as the records that they were: a new version of the
        schema reads those, too.
        """
        (read,) = reads
        memory, occurred_at, record = self._memory, self._source.occurred_at, F.col("__record")
        good = self._decoded(read).where(F.col(REASON).isNull())
        coming = good.withWatermark(occurred_at, f"{self._late_after + read.more_minutes} minutes").select(
            F.col(memory.of).alias("of"),
            F.unix_micros(occurred_at).alias("at"),
            *[record[name].alias(name) for name in ("partition", "offset", "value")],
            *[F.col(name).alias(READS + name) for name in self._reads],
            # By it Spark tells which ones are late.
            occurred_at,
        )
        counted = coming.groupBy("of").transformWithState(
            self._processor, self._processor.made, outputMode="append", timeMode="eventTime"
        )
        return self._made(counted, read)

    def _made(self, counted: DataFrame, read: Read) -> DataFrame:
        """What the function makes of rows of `MemoryProcessor`."""
        place = F.struct("partition", "offset")
        beside = {PLACE: place, _FAULT: F.col("fault"), _FIELDS: F.col("fields")}
        unknown = {"topic": "string", "timestamp": "timestamp", "key": "binary", "headers": "binary"}
        raw = counted.withColumns({**beside, **{name: F.lit(None).cast(kind) for name, kind in unknown.items()}})
        decoded = events(raw, read.schemas, *beside)
        fields = {name: F.col(_FIELDS)[name] for name in self._memory.fields}
        # One that no schema reads any more, as after a registry was made anew, is told as such.
        decoded = decoded.withColumn(_FAULT, F.coalesce(_FAULT, "__error"))
        whole = decoded.select(*self._names, PLACE, _FAULT, *[each.alias(name) for name, each in fields.items()])
        given = whole.select(*self._names, *fields)
        return carrying(called(self._pipeline, given).select(self._wanted), given, whole, _FAULT)

    def _decoded(self, read: Read) -> DataFrame:
        return without_future(events(read.raw, read.schemas), self._source.occurred_at, self._late_after)

    def to_rows(self, made: DataFrame) -> DataFrame:
        """Events to rows of `stateful_rows`. The id is the coordinate of the raw record."""
        record_id, key = coordinate(self._source.name, F.col(PLACE)), key_of(self._target)
        return stateful_rows(
            made, self._schema, self._schema_id, key, self._target.occurred_at, record_id, F.col(_FAULT)
        )

    def aside(self, topic: str, schemas: WriterSchemas, watermark_ms: int) -> ToRows:
        """Raw records to rows of `spark.sinks.kafka.sink.outgoing`: the bad ones, and those whose event is not newer than the watermark, milliseconds
        since 1970, with the reason LATE.
        """

        def rows(raw: DataFrame) -> DataFrame:
            return late_or_bad(self._decoded(Read(raw, schemas)), F.col(self._source.occurred_at), watermark_ms)

        return rows


def _ship(after: Callable[..., object]) -> None:
    """Have workers get a function as it is by now: one that starts later must not read another from the file. What can't be sent so, they read as before."""
    module = sys.modules.get(after.__module__) if inspect.isfunction(after) else None
    # Of a package its modules would go, too.
    if module is None or hasattr(module, "__path__"):
        return
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    try:
        cloudpickle.dumps(after)  # type: ignore[no-untyped-call]
    except Exception:  # noqa: BLE001  whatever its module holds, such as a lock
        cloudpickle.unregister_pickle_by_value(module)  # type: ignore[no-untyped-call]


def _reads(pipeline: Pipeline, memory: Memory, kinds: StructType, occurred_at: str) -> dict[str, str]:
    """The types of the fields that a memory reads, by name, in the order of the names: in it they lie in the state. Raises PipelineUnfit."""
    there = {each.name: each.dataType.simpleString() for each in kinds}
    for name in (memory.of, *memory.reads):
        if name not in there:
            raise PipelineUnfit(
                f"{pipeline.name} has a memory of the field {name}, which {pipeline.source} has not: name one of {', '.join(sorted(there))}"
            )
    if there[memory.of] not in _TELLING_APART:
        raise PipelineUnfit(
            f"{pipeline.name} remembers events by {memory.of}, a {there[memory.of]}: take a text, a whole number or a boolean"
        )
    for name in memory.reads:
        if there[name] not in _READABLE and name != occurred_at:
            raise PipelineUnfit(
                f"the memory of {pipeline.name} reads {name}, a {there[name]}, and can read texts, numbers and booleans only; the time of an event, "
                f"{occurred_at}, it is given anyway: leave {name} out"
            )
    if taken := sorted(memory.fields.keys() & {*there}):
        raise PipelineUnfit(
            f"the memory of {pipeline.name} has a field {taken[0]}, which {pipeline.source} has, too: give it a name of its own"
        )
    return {name: there[name] for name in sorted({*memory.reads} - {memory.of, occurred_at})}


def _check(spark: SparkSession, pipeline: Pipeline, catalog: Catalog, memory: Memory, kinds: StructType) -> list[str]:
    """The fields that are made. Raises PipelineUnfit."""
    if pipeline.lookups:
        raise PipelineUnfit(f"{pipeline.name} has a memory and lookups, which it can't: leave the lookups out")
    target, occurred_at = catalog.topic(pipeline.target), catalog.topic(pipeline.source).occurred_at
    if target.key not in (None, memory.of):
        raise PipelineUnfit(
            f"{pipeline.name} remembers events by {memory.of}, and {target.name} has the key {target.key}, so records of one key would have no order: "
            f"write key: {memory.of}, or none"
        )
    if target.occurred_at != occurred_at:
        raise PipelineUnfit(
            f"{target.name} has events of {target.occurred_at}, and {pipeline.source} of {occurred_at}: an event keeps its time, so write "
            f"occurred_at: {occurred_at}"
        )
    fields = [StructField(name, KINDS[kind]) for name, kind in memory.fields.items()]
    given = spark.createDataFrame(spark.sparkContext.emptyRDD(), StructType([*kinds.fields, *fields]))
    made = called(pipeline, given)
    check_steps(pipeline, made, given, target)
    check_repeated(pipeline, made, given)
    wanted = [field.name for field in check_wanted(spark, pipeline, catalog, pipeline.target, made, ())]
    kept = unchanged(made, given)
    check_carried(pipeline, {*wanted}.intersection(kinds.fieldNames()), kept)
    check_types(
        pipeline,
        catalog,
        pipeline.target,
        carried(catalog, pipeline.source, pipeline.target, kept.intersection(kinds.fieldNames())),
    )
    return wanted

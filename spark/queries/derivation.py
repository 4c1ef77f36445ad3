"""What a pipeline makes of raw records: `Derivation`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.types import ArrayType, DataType, StringType, StructField, StructType

from contracts.catalog import Catalog
from contracts.errors import NotAProducer
from contracts.own_schema import OwnSchema
from contracts.registry import Registry
from spark.lookups.dimensions import Dimension
from spark.lookups.enriched_value import STAMPED, EnrichedValue
from spark.lookups.join import look_up
from spark.pipeline import Pipeline
from spark.records.decode import events
from spark.records.schemas import WriterSchemas
from spark.runtime.errors import PipelineUnfit
from spark.runtime.internals.plans import NotRowByRow, carrying, expressions, steps, unchanged, used
from spark.sinks.kafka.sink import Route, outgoing

_REASON_CHARACTERS = 500
_PLATFORM = (*STAMPED, "unmatched")
_OF_THE_MOMENT = ("CurrentTimestamp", "CurrentDate", "CurrentTime", "LocalTimestamp", "Now", "CurrentBatchTimestamp")


def route(pipeline: Pipeline, catalog: Catalog) -> Route:
    """From which topic to which."""
    source, target = catalog.topic(pipeline.source), catalog.topic(pipeline.target)
    return Route(pipeline.name, source.name, target.name, source.dead_letter_topic)


def target_schema(pipeline: Pipeline, catalog: Catalog, registry: Registry, producer: str | None = None) -> OwnSchema:
    """The target's schema, registered. Raises NotAProducer if its contract does not list the `producer`, the pipeline if there is none."""
    target, who = catalog.topic(pipeline.target), producer or pipeline.name
    if who not in target.producers:
        raise NotAProducer(f"{who} is no producer of {target.name}; its contract lists {', '.join(target.producers)}")
    return OwnSchema(registry, target.subject, catalog.schema(pipeline.target))


class Derivation:
    """Decodes raw records, looks up, calls the pipeline's function and encodes what it made."""

    def __init__(self, spark: SparkSession, pipeline: Pipeline, catalog: Catalog, schema_id: int) -> None:
        """`schema_id` is that of the target's schema. Raises PipelineUnfit, and ContractError if that has no null for a field that a
        lookup fills in.
        """
        made, given = check(spark, pipeline, catalog)
        kept, schema = unchanged(made, given), catalog.schema(pipeline.target)
        self._pipeline = pipeline
        self._value = EnrichedValue(schema, schema_id, pipeline.lookups, kept, used(made, given))
        there = kept & _never_null(catalog.schema(pipeline.source))
        self._required = sorted(_never_null(schema).intersection(made.columns).difference(there))
        key = catalog.topic(pipeline.target).key
        # A producer's own bytes, wherever the events of both topics have the same key.
        self._key = None if key is None or (key == catalog.topic(pipeline.source).key and key in kept) else key

    def sides(self, dimensions: Mapping[str, Dimension]) -> list[DataFrame]:
        """What `rows` joins."""
        return self._value.sides(dimensions)

    def rows(
        self,
        raw: DataFrame,
        schemas: WriterSchemas,
        sides: Sequence[DataFrame],
        dimensions: Mapping[str, Dimension],
    ) -> DataFrame:
        """Raw records as rows of `spark.sinks.kafka.sink.outgoing`; the `sides` are of these `dimensions`."""
        looked_up = look_up(events(raw, schemas), self._pipeline.lookups, sides)
        made = _without_nulls(derived(self._pipeline, looked_up), self._required)
        key = None if self._key is None else F.col(self._key).cast("string").cast("binary")
        unmatched = F.array_join("unmatched", ",")
        return outgoing(made, key, self._value.column(dimensions), unmatched)


def derived(pipeline: Pipeline, looked_up: DataFrame) -> DataFrame:
    """What the pipeline makes of events with what was looked up. Columns with two underscores before their name are the platform's,
    as is `unmatched`: they come out whatever the function has chosen.
    """
    platform = [name for name in looked_up.columns if name.startswith("__")]
    return carrying(pipeline(looked_up), looked_up, [*platform, "unmatched"])


def check(spark: SparkSession, pipeline: Pipeline, catalog: Catalog) -> tuple[DataFrame, DataFrame]:
    """The target's fields as the function makes them of a frame without rows, and that frame.

    Raises PipelineUnfit, which says what to change, if the function can't be run record by record or makes no event of its target.
    """
    kinds = {field.name: field.dataType for field in _event(spark, catalog.schema(pipeline.source))}
    for lookup in pipeline.lookups:
        of = {column.name: column.type for column in catalog.dimension(lookup.dimension).columns}
        kinds |= {field: DataType.fromDDL(of[column]) for field, column in lookup.fields.items()}
    kinds["unmatched"] = ArrayType(StringType())
    given = spark.createDataFrame(
        spark.sparkContext.emptyRDD(), StructType([StructField(name, kind) for name, kind in kinds.items()])
    )
    made = _called(pipeline, given)
    _check_steps(pipeline, made, given)
    there = {field.name: field.dataType.simpleString() for field in made.schema}
    wanted = [field for field in _event(spark, catalog.schema(pipeline.target)) if field.name not in _PLATFORM]
    for field in wanted:
        kind = field.dataType.simpleString()
        if field.name not in there:
            raise PipelineUnfit(
                f"{pipeline.name} makes no {field.name}, which {pipeline.target} has: add it to what the function returns"
            )
        if there[field.name] != kind:
            raise PipelineUnfit(
                f"{pipeline.name} makes {field.name} a {there[field.name]}, in {pipeline.target} it is {kind}: cast it"
            )
    return made.select([field.name for field in wanted]), given


def _called(pipeline: Pipeline, given: DataFrame) -> DataFrame:
    try:
        made = pipeline(given)
    except Exception as error:
        reason = next(iter(str(error).strip().splitlines()), "")
        raise PipelineUnfit(
            f"{pipeline.name} fails with the fields that it gets: {type(error).__name__}: {reason[:_REASON_CHARACTERS]}"
        ) from error
    if not isinstance(made, DataFrame):
        raise PipelineUnfit(f"{pipeline.name} returns {made!r:.100}, and not a frame")
    return made


def _without_nulls(made: DataFrame, required: Sequence[str]) -> DataFrame:
    """A record that lacks a field which its schema requires is a bad one: encoding it would fail, again and again."""
    if not required:
        return made
    is_good, lacking = F.col("__reason").isNull(), F.col(required[0]).isNull()
    names = F.concat_ws(", ", *[F.when(F.col(name).isNull(), name) for name in required])
    for name in required[1:]:
        lacking = lacking | F.col(name).isNull()
    error = F.concat(F.lit("the schema has no null for what the pipeline makes of it: "), names)
    return made.withColumns(
        {
            "__reason": F.when(is_good & lacking, "NullField").otherwise(F.col("__reason")),
            "__error": F.when(is_good & lacking, error).otherwise(F.col("__error")),
        }
    )


def _never_null(schema: str) -> frozenset[str]:
    """The fields of an Avro schema, JSON text, that allow no null."""
    kinds = {field["name"]: field["type"] for field in json.loads(schema)["fields"]}
    return frozenset(name for name, kind in kinds.items() if kind != "null" and "null" not in kind)


def _check_steps(pipeline: Pipeline, made: DataFrame, given: DataFrame) -> None:
    try:
        for step in steps(made, given):
            for each in expressions(step):
                kind = str(each.getClass().getSimpleName())
                if "Python" in kind:
                    raise PipelineUnfit(
                        f"{pipeline.name} calls a Python function for each row, {each}: write it as an expression"
                    )
                if kind in _OF_THE_MOMENT or not each.deterministic():
                    raise PipelineUnfit(
                        f"{pipeline.name}: {each} is another value each time, and a record that is made again must be the same one: "
                        "take it from the event"
                    )
    except NotRowByRow as error:
        raise PipelineUnfit(
            f"{pipeline.name} has a step that is no projection of one row, {error}: it can only add, choose and rename columns"
        ) from error


def _event(spark: SparkSession, schema: str) -> StructType:
    """An Avro schema as Spark has it."""
    event = spark.range(0).select(from_avro(F.lit(None).cast("binary"), schema).alias("event")).schema["event"].dataType
    assert isinstance(event, StructType)
    return event

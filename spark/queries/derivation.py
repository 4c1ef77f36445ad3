"""What a pipeline makes of raw records: `Derivation`."""

from __future__ import annotations

import functools
import json
import operator
import re
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.types import (
    BooleanType,
    DataType,
    DateType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from contracts.definitions.catalog import Catalog
from contracts.definitions.pipelines import pipeline_files
from contracts.definitions.topic import TopicContract
from contracts.errors import NotAProducer
from contracts.records.limits import COMPUTED_TEXT_BYTES
from contracts.servers.own_schema import OwnSchema
from contracts.servers.registry import Registry
from spark.lookups.dimensions import Dimension
from spark.lookups.enriched_value import STAMPED, EnrichedValue
from spark.lookups.join import look_up
from spark.pipeline import Pipeline
from spark.records.decode import events
from spark.records.schemas import WriterSchemas, never_null
from spark.runtime.errors import PipelineUnfit
from spark.runtime.internals.plans import FILTER, NotRowByRow, carrying, expressions, steps, unchanged, used
from spark.runtime.lifecycle import in_a_line
from spark.sinks.kafka.sink import Route, ToRows, outgoing

_KINDS: dict[str, DataType] = {
    "string": StringType(),
    "int": IntegerType(),
    "long": LongType(),
    "double": DoubleType(),
    "boolean": BooleanType(),
    "date": DateType(),
}
"""Types of a dimension's columns. `DataType.fromDDL` knows them as well, at 30 ms each."""

_COMPUTED = ("string", "boolean", "int", "long", "float", "double")
_LOOKUP_NAME = re.compile(r"[a-z0-9_]+(\.[a-z0-9_]+)*")
_PLATFORM = (*STAMPED, "unmatched")
_RAISING = ("RaiseError", "AssertTrue")
_OF_THE_MOMENT = ("CurrentTimestamp", "CurrentDate", "CurrentTime", "LocalTimestamp", "Now", "CurrentBatchTimestamp")


def route(pipeline: Pipeline, catalog: Catalog) -> Route:
    """From which topic to which."""
    source, target = catalog.topic(pipeline.source), catalog.topic(pipeline.target)
    return Route(pipeline.name, source.name, target.name, source.dead_letter_topic, target.is_filtered)


def target_schema(pipeline: Pipeline, catalog: Catalog, registry: Registry, producer: str | None = None) -> OwnSchema:
    """The target's schema, registered. Raises NotAProducer if its contract does not list the `producer`, the pipeline if there is none."""
    target, who = catalog.topic(pipeline.target), producer or pipeline.name
    if who not in target.producers:
        raise NotAProducer(f"{who} is no producer of {target.name}; its contract lists {', '.join(target.producers)}")
    return OwnSchema(registry, target.subject, catalog.schema(pipeline.target))


class Fault(NamedTuple):
    """A dead letter's reason, whether a row has it, and what is wrong in words."""

    reason: str
    is_so: Column
    error: Column


class Checked(NamedTuple):
    """What is known of a pipeline's function: the target's fields as it makes them of `given`, a frame without rows; the columns of `given`
    that come out `unchanged`, those that it has `used` for more, and the faults of what it computes.
    """

    made: DataFrame
    given: DataFrame
    unchanged: frozenset[str]
    used: frozenset[str]
    faults: list[Fault]


class Derivation:
    """Decodes raw records, looks up, calls the pipeline's function and encodes what it made."""

    def __init__(self, spark: SparkSession, pipeline: Pipeline, catalog: Catalog, schema_id: int) -> None:
        """`schema_id` is that of the target's schema. Raises PipelineUnfit, and ContractError if that has no null for a field that a
        lookup fills in.
        """
        checked, schema = check(spark, pipeline, catalog), catalog.schema(pipeline.target)
        self._pipeline = pipeline
        self._value = EnrichedValue(schema, schema_id, pipeline.lookups, checked.unchanged, checked.used)
        self._faults = checked.faults

    def sides(self, dimensions: Mapping[str, Dimension]) -> list[DataFrame]:
        """What `to_rows` joins."""
        return self._value.sides(dimensions)

    def to_rows(
        self, schemas: WriterSchemas, sides: Sequence[DataFrame], dimensions: Mapping[str, Dimension]
    ) -> ToRows:
        """Raw records to rows of `spark.sinks.kafka.sink.outgoing`; the `sides` are of these `dimensions`."""
        value, unmatched = self._value.column(dimensions), F.array_join("unmatched", ",")

        def rows(raw: DataFrame) -> DataFrame:
            looked_up = look_up(events(raw, schemas), self._pipeline.lookups, sides)
            made = set_aside(derived(self._pipeline, looked_up), self._faults)
            return outgoing(made, value, unmatched)

        return rows


def derived(pipeline: Pipeline, looked_up: DataFrame) -> DataFrame:
    """What the pipeline makes of events with what was looked up, and beside it the platform's columns: `unmatched`, and those with two
    underscores before their name, which the function does not see. Bad records, those with a `__reason`, pass its filters.
    """
    given = looked_up.select(
        [name for name in looked_up.columns if name not in _PLATFORM and not name.startswith("__")]
    )
    return carrying(pipeline(given), given, looked_up, "__reason")


def faults(pipeline: Pipeline, catalog: Catalog, unchanged: Collection[str]) -> list[Fault]:
    """What can be wrong with that which the function has computed, and no record of the target's may have."""
    schema = catalog.schema(pipeline.target)
    found = []
    if required := sorted(set(never_null(schema)).difference(never_null(catalog.schema(pipeline.source)), _PLATFORM)):
        lacking = F.concat_ws(", ", *[F.when(F.col(name).isNull(), name) for name in required])
        error = F.concat(F.lit("the schema has no null for what the pipeline makes of the record: "), lacking)
        found.append(Fault("NullField", lacking != "", error))
    if texts := [
        name for name, kind in _kinds(schema).items() if kind == "string" and name not in {*unchanged, *_PLATFORM}
    ]:
        size = functools.reduce(operator.add, [F.coalesce(F.octet_length(name), F.lit(0)) for name in texts])
        error = F.concat(
            F.lit("the pipeline computes texts of "), size, F.lit(f" bytes, at most {COMPUTED_TEXT_BYTES} fit")
        )
        found.append(Fault("TooLong", size > COMPUTED_TEXT_BYTES, error))
    return found


def set_aside(made: DataFrame, faults: Sequence[Fault]) -> DataFrame:
    """`made`, where a good record with a fault is a bad one: to encode or to send it would fail, again and again."""
    for fault in faults:
        is_bad = F.col("__reason").isNull() & fault.is_so
        made = made.withColumns(
            {
                "__reason": F.when(is_bad, fault.reason).otherwise(F.col("__reason")),
                "__error": F.when(is_bad, fault.error).otherwise(F.col("__error")),
            }
        )
    return made


def check(spark: SparkSession, pipeline: Pipeline, catalog: Catalog) -> Checked:
    """Raises PipelineUnfit, which says what to change, if the function can't be run record by record or makes no event of its target."""
    source = {field.name: field.dataType for field in _event(spark, catalog.schema(pipeline.source))}
    kinds = source | _looked_up(pipeline, catalog, source)
    given = spark.createDataFrame(
        spark.sparkContext.emptyRDD(), StructType([StructField(name, kind) for name, kind in kinds.items()])
    )
    made = _called(pipeline, given)
    _check_steps(pipeline, made, given, catalog.topic(pipeline.target))
    there = {field.name: field.dataType.simpleString() for field in made.schema}
    if len(there) < len(made.columns) or there.keys() & set(_PLATFORM):
        twice = sorted({name for name in made.columns if made.columns.count(name) > 1 or name in _PLATFORM})
        raise PipelineUnfit(
            f"{pipeline.name} makes {', '.join(twice)} twice, or in place of the platform: name them otherwise"
        )
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
    writers = set(pipeline_files()).intersection(catalog.topic(pipeline.target).producers)
    if pipeline.name in writers and len(writers) > 1:
        raise PipelineUnfit(f"{' and '.join(sorted(writers))} write {pipeline.target}: a topic has one pipeline")
    if catalog.topic(pipeline.target).derived_from != catalog.topic(pipeline.source).name:
        raise PipelineUnfit(
            f"{pipeline.name} reads {pipeline.source}, and {pipeline.target} is not derived from it by its contract: headrace contracts check"
        )
    key, of_source = catalog.topic(pipeline.target).key, catalog.topic(pipeline.source).key
    if key not in (None, of_source):
        raise PipelineUnfit(
            f"{pipeline.target} has the key {key}, {pipeline.source} has {of_source}: a record keeps its key, and its order"
        )
    kept = unchanged(made, given)
    if lost := {field.name for field in wanted} & source.keys() - kept:
        # The audit compares them with the raw record, and a repair calls the function with those of the derived one.
        raise PipelineUnfit(
            f"{pipeline.name} changes {', '.join(sorted(lost))}: an event's own fields are carried on as they are; give what is computed a "
            "name of its own"
        )
    _check_types(pipeline, catalog, kept)
    chosen = made.select([field.name for field in wanted])
    return Checked(chosen, given, kept, used(chosen, given), faults(pipeline, catalog, kept))


def _looked_up(pipeline: Pipeline, catalog: Catalog, source: Mapping[str, DataType]) -> dict[str, DataType]:
    """The fields that lookups fill in, and their types."""
    found: dict[str, DataType] = {}
    for lookup in pipeline.lookups:
        contract = catalog.dimension(lookup.dimension)
        of = {column.name: _KINDS[column.type] for column in contract.columns}
        wrong = [f"{lookup.dimension} has no column {each}" for each in lookup.fields.values() if each not in of]
        wrong += [f"{each} is filled in already" for each in lookup.fields if each in found or each in source]
        if len(contract.key) != 1:
            wrong.append(f"{lookup.dimension} has a key of several columns, which no lookup can name yet")
        elif lookup.by not in source or source[lookup.by] != of[contract.key[0]]:
            wrong.append(f"{lookup.by} is no field of {pipeline.source} with the type of {contract.key[0]}")
        if not _LOOKUP_NAME.fullmatch(lookup.name) or [each.found for each in pipeline.lookups].count(lookup.found) > 1:
            wrong.append("its name is not one of its own, of lower-case words with points between")
        if wrong:
            raise PipelineUnfit(f"{pipeline.name}: lookup {lookup.name}: {'; '.join(wrong)}")
        found |= {field: of[column] for field, column in lookup.fields.items()}
    return found


def _check_types(pipeline: Pipeline, catalog: Catalog, unchanged: Collection[str]) -> None:
    """What is computed must be of a type whose every value can be encoded, and of a bounded size."""
    for name, kind in _kinds(catalog.schema(pipeline.target)).items():
        if name not in {*unchanged, *_PLATFORM} and kind not in _COMPUTED:
            raise PipelineUnfit(
                f"{pipeline.name} computes {name}, a {kind}: what is computed can be {', '.join(_COMPUTED)}, since not every value of "
                "another type can be encoded, or its size is not bounded"
            )


def _kinds(schema: str) -> dict[str, str]:
    """The fields of an Avro schema, JSON text, and their types without null; of a logical type the one below."""
    found = {}
    for field in json.loads(schema)["fields"]:
        branches = field["type"] if isinstance(field["type"], list) else [field["type"]]
        kinds = [branch["type"] if isinstance(branch, dict) else branch for branch in branches if branch != "null"]
        found[field["name"]] = str(kinds[0]) if len(kinds) == 1 else "union"
    return found


def _called(pipeline: Pipeline, given: DataFrame) -> DataFrame:
    try:
        made = pipeline(given)
    except Exception as error:
        raise PipelineUnfit(f"{pipeline.name} fails with the fields that it gets: {in_a_line(error)}") from error
    if not isinstance(made, DataFrame):
        raise PipelineUnfit(f"{pipeline.name} returns {made!r:.100}, and not a frame")
    return made


def _check_steps(pipeline: Pipeline, made: DataFrame, given: DataFrame, target: TopicContract) -> None:
    try:
        for step in steps(made, given):
            if step.nodeName() == FILTER and not target.is_filtered:
                raise PipelineUnfit(
                    f"{pipeline.name} leaves records out, and the contract of {target.name} promises one for each: write records: some there, "
                    "or keep them all"
                )
            for each in expressions(step):
                kind = str(each.getClass().getSimpleName())
                if kind.endswith("Subquery"):
                    raise PipelineUnfit(f"{pipeline.name} reads another table by {each}: use a lookup")
                if "Python" in kind:
                    raise PipelineUnfit(
                        f"{pipeline.name} calls a Python function for each row, {each}: write it as an expression"
                    )
                if kind in _RAISING:
                    raise PipelineUnfit(
                        f"{pipeline.name}: {each} stops the pipeline at a record, for good: leave a field null, which makes a dead letter where "
                        "the schema has no null for it"
                    )
                if kind in _OF_THE_MOMENT or not each.deterministic():
                    raise PipelineUnfit(
                        f"{pipeline.name}: {each} is another value each time, and a record that is made again must be the same one: "
                        "take it from the event"
                    )
    except NotRowByRow as error:
        raise PipelineUnfit(
            f"{pipeline.name} has a step that needs more than one row, {error}: it can only filter rows, and add, choose and rename columns"
        ) from error


def _event(spark: SparkSession, schema: str) -> StructType:
    """An Avro schema as Spark has it."""
    event = spark.range(0).select(from_avro(F.lit(None).cast("binary"), schema).alias("event")).schema["event"].dataType
    assert isinstance(event, StructType)
    return event

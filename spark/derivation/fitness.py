"""Whether a pipeline's function is fit for its contracts: `check`."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.types import DataType, StringType, StructField, StructType

from contracts.checks.lookup_rules import lookup_faults
from contracts.definitions.catalog import Catalog
from contracts.definitions.pipelines import pipeline_files
from contracts.definitions.topic import TopicContract
from spark.derivation.faults import PLATFORM, Fault, faults, kinds_of, narrow_texts, of_branches
from spark.derivation.steps import check_steps
from spark.lookups.dimensions import KINDS
from spark.pipeline import Pipeline
from spark.runtime.errors import PipelineUnfit
from spark.runtime.internals.plans import exploded_fields, unchanged, used
from spark.runtime.lifecycle import in_a_line
from spark.sinks.kafka.sink import BRANCH

_COMPUTED = ("string", "boolean", "int", "long", "float", "double")
_DOES = {
    "aggregate": "aggregates",
    "join": "joins",
    "distinct": "lets each event through once",
    "sequence": "remembers the events before each",
    "ranking": "ranks",
}
"""What a pipeline with state does."""


class Checked(NamedTuple):
    """What is known of a pipeline's function: the targets' fields, of a branch with that column, as it makes them of `given`, a frame without rows; the columns of `given`
    that come out `unchanged`, those that it has `used` for more, and the faults of what it computes.
    """

    made: DataFrame
    given: DataFrame
    unchanged: frozenset[str]
    used: frozenset[str]
    faults: list[Fault]


def check(spark: SparkSession, pipeline: Pipeline, catalog: Catalog) -> Checked:
    """Raises PipelineUnfit, which says what to change, if the function can't be run record by record or makes no event of its target."""
    if pipeline.branches:
        _check_branches(spark, pipeline, catalog)
    elif (derivation := catalog.topic(pipeline.target).derivation) is not None and derivation.records in _DOES:
        raise PipelineUnfit(
            f"{pipeline.name} {_DOES[derivation.records]}, and what it makes of one record depends on others"
        )
    for target in pipeline.targets:
        _check_memory(pipeline, catalog.topic(target))
    source = {field.name: field.dataType for field in event_type(spark, catalog.schema(pipeline.source))}
    kinds = source | _looked_up(pipeline, catalog)
    given = spark.createDataFrame(
        spark.sparkContext.emptyRDD(), StructType([StructField(name, kind) for name, kind in kinds.items()])
    )
    made = called(pipeline, given)
    check_steps(pipeline, made, given, catalog.topic(pipeline.targets[0]))
    check_repeated(pipeline, made, given)
    check_source(pipeline, catalog)
    wanted: dict[str, None] = {}
    for target in pipeline.targets:
        wanted |= dict.fromkeys(field.name for field in check_wanted(spark, pipeline, catalog, target, made, PLATFORM))
        check_key(pipeline, catalog, target)
    kept = unchanged(made, given)
    check_carried(pipeline, wanted.keys() & source.keys(), kept)
    for target in pipeline.targets:
        check_types(pipeline, catalog, target, carried(catalog, pipeline.source, target, kept & source.keys()))
    if pipeline.branches:
        _check_branch_column(pipeline, made)
        wanted[BRANCH] = None
        found = of_branches(
            {name: faults(pipeline, catalog, target, kept) for name, target in pipeline.branches.items()}
        )
    else:
        found = faults(pipeline, catalog, pipeline.target, kept, exploded_fields(made, given))
    chosen = made.select(*wanted)
    return Checked(chosen, given, kept, used(chosen, given), found)


def _check_branches(spark: SparkSession, pipeline: Pipeline, catalog: Catalog) -> None:
    """Raises PipelineUnfit unless the contract of each topic lets it have only some of the records."""
    for target in pipeline.targets:
        contract = catalog.topic(target)
        if contract.derivation is None or contract.derivation.records != "some":
            raise PipelineUnfit(
                f"{pipeline.name} writes each record to one of {len(pipeline.branches)} topics, and the contract of {target} does not say "
                "records: some: write it there"
            )
        if BRANCH in event_type(spark, catalog.schema(target)).fieldNames():
            raise PipelineUnfit(
                f"{target} has a field {BRANCH}, and the column {BRANCH} of {pipeline.name} says which topic a row goes to: name the field "
                "otherwise"
            )


def _check_branch_column(pipeline: Pipeline, made: DataFrame) -> None:
    there = made.schema[BRANCH].dataType if BRANCH in made.columns else None
    if there != StringType():
        raise PipelineUnfit(
            f"{pipeline.name} makes {f'{BRANCH} a {there.simpleString()}' if there else f'no {BRANCH}'}: add a text column {BRANCH}, which is "
            f"{' or '.join(pipeline.branches)}, or null for a record that goes nowhere"
        )


def check_source(pipeline: Pipeline, catalog: Catalog) -> None:
    """Raises PipelineUnfit unless the contracts say that this pipeline, alone, makes its target of its source."""
    for target in pipeline.targets:
        writers = set(pipeline_files()).intersection(catalog.topic(target).producers)
        if pipeline.name in writers and len(writers) > 1:
            raise PipelineUnfit(f"{' and '.join(sorted(writers))} write {target}: a topic has one pipeline")
        _check_memory(pipeline, catalog.topic(target))
        if catalog.topic(target).sources != tuple(catalog.topic(name).name for name in pipeline.sources):
            raise PipelineUnfit(
                f"{pipeline.name} reads {' and '.join(pipeline.sources)}, and {target} is not derived from {'it' if pipeline.second is None else 'both'} by its contract: "
                "make derived_from there and the function agree, headrace contracts check compares them"
            )


def _check_memory(pipeline: Pipeline, target: TopicContract) -> None:
    if target.is_sequence == (pipeline.memory is not None):
        return
    if target.is_sequence:
        raise PipelineUnfit(
            f"{pipeline.name} has no memory, and the contract of {target.name} says records: sequence: give its decorator memory=Memory(…), or write "
            "records: some there"
        )
    said = "nothing" if target.derivation is None else target.derivation.records
    raise PipelineUnfit(
        f"{pipeline.name} has a memory, and the contract of {target.name} says records: {said}: write records: sequence, late_after_minutes: 60 there"
    )


def check_key(pipeline: Pipeline, catalog: Catalog, target: str) -> None:
    """Raises PipelineUnfit unless the records of the topic `target` have the keys of the source's, or none."""
    key, of_source = catalog.topic(target).key, catalog.topic(pipeline.source).key
    if key not in (None, of_source):
        raise PipelineUnfit(
            f"{target} has the key {key}, {pipeline.source} has {of_source}: a record keeps its key, and its order: give both the same"
        )


def check_carried(pipeline: Pipeline, own: Collection[str], unchanged: Collection[str]) -> None:
    """Raises PipelineUnfit unless those fields that are the source's `own` come out `unchanged`."""
    if lost := {*own}.difference(unchanged):
        # The audit compares them with the raw record, and a repair calls the function with those of the derived one.
        raise PipelineUnfit(
            f"{pipeline.name} changes {', '.join(sorted(lost))}: an event's own fields are carried on as they are; give what is computed a "
            "name of its own"
        )


def check_wanted(
    spark: SparkSession, pipeline: Pipeline, catalog: Catalog, target: str, made: DataFrame, platform: Collection[str]
) -> list[StructField]:
    """The fields of the topic `target` but for those that the platform fills in. Raises PipelineUnfit unless the function makes them all."""
    there = {field.name: field.dataType.simpleString() for field in made.schema}
    if twice := sorted({name for name in made.columns if made.columns.count(name) > 1}):
        raise PipelineUnfit(f"{pipeline.name} makes {', '.join(twice)} twice: give each a name of its own")
    wanted = [field for field in event_type(spark, catalog.schema(target)) if field.name not in platform]
    for field in wanted:
        kind = field.dataType.simpleString()
        if field.name not in there:
            raise PipelineUnfit(
                f"{pipeline.name} makes no {field.name}, which {target} has: add it to what the function returns"
            )
        if there[field.name] != kind:
            raise PipelineUnfit(
                f"{pipeline.name} makes {field.name} a {there[field.name]}, in {target} it is {kind}: cast it"
            )
    return wanted


def _looked_up(pipeline: Pipeline, catalog: Catalog) -> dict[str, DataType]:
    """The fields that lookups fill in, and their types."""
    wrong = [
        f"lookup {lookup.name}: {what}: {cure}"
        for lookup, what, cure in lookup_faults(pipeline.lookups, pipeline.source, catalog)
    ]
    if wrong:
        raise PipelineUnfit(f"{pipeline.name}: {'; '.join(wrong)}")
    kinds = {
        (name, column.name): KINDS[column.type]
        for name in pipeline.dimensions
        for column in catalog.dimension(name).columns
    }
    return {
        field: kinds[lookup.dimension, column] for lookup in pipeline.lookups for field, column in lookup.fields.items()
    }


def check_types(pipeline: Pipeline, catalog: Catalog, target: str, exempt: Collection[str]) -> None:
    """What is computed or looked up must be of a type whose every value can be encoded, and of a bounded size; fields that are `exempt` are neither."""
    looked_up = {name for lookup in pipeline.lookups for name in lookup.fields}
    narrow = narrow_texts(catalog.schema(target))
    for name, kind in kinds_of(catalog.schema(target)).items():
        if name in {*exempt, *PLATFORM} or (kind in _COMPUTED and not (name in looked_up and name in narrow)):
            continue
        kind = "uuid" if name in narrow and kind != "enum" else kind
        raise PipelineUnfit(
            f"{pipeline.name} makes {name}, of type {kind}: what is computed, looked up or carried from another type can be {', '.join(_COMPUTED)}, "
            f"since not every value of another type can be encoded, or its size is not bounded: give {name} one of these types in {target}"
        )


def carried(catalog: Catalog, source: str, target: str, names: Collection[str]) -> set[str]:
    """Those of the fields `names` of the topic `source`, which come out as they are, that the topic `target` can have every value of."""
    before, after = narrow_texts(catalog.schema(source)), narrow_texts(catalog.schema(target))
    return {name for name in names if name not in after or (name in before and before[name] <= after[name])}


def called(pipeline: Pipeline, *given: DataFrame) -> DataFrame:
    """What the function makes of frames. Raises PipelineUnfit if it fails, or makes no frame."""
    try:
        made = pipeline(*given)
    except PipelineUnfit:
        raise
    except Exception as error:
        raise PipelineUnfit(f"{pipeline.name} fails with the fields that it gets: {in_a_line(error)}") from error
    if not isinstance(made, DataFrame):
        raise PipelineUnfit(f"{pipeline.name} returns {made!r:.100}, and not a frame: return a DataFrame")
    return made


def check_repeated(pipeline: Pipeline, made: DataFrame, *given: DataFrame) -> None:
    """Raises PipelineUnfit if the function, called once more, makes another frame: what Python computes in it is a constant of the plan, and is computed
    anew at each start.
    """
    again = called(pipeline, *given)
    if again.columns != made.columns or not again.sameSemantics(made):
        raise PipelineUnfit(
            f"{pipeline.name} makes something else each time that it is called, so its records would be others after a restart: it reads Python's "
            "clock, or chance, as datetime.now(), random or uuid4 do. Take the value from the event"
        )


def event_type(spark: SparkSession, schema: str) -> StructType:
    """An Avro schema as Spark has it."""
    event = spark.range(0).select(from_avro(F.lit(None).cast("binary"), schema).alias("event")).schema["event"].dataType
    assert isinstance(event, StructType)
    return event

"""What a pipeline makes of raw records: `Derivation`."""

from __future__ import annotations

import functools
import json
import operator
import re
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

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
from spark.runtime.internals.plans import (
    ARRAY,
    ELEMENT,
    EXPLODE,
    FILTER,
    INLINE,
    NotRowByRow,
    carrying,
    expressions,
    items,
    kind_of,
    steps,
    unchanged,
    used,
)
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
_LENGTHS = {"Sequence": slice(None), "ArrayRepeat": slice(1, 2), "StringRepeat": slice(1, 2), "StringSpace": slice(1)}
"""Expressions whose value is as long as these inputs of theirs say."""
_TAKING_OUT = ("AttributeReference", "Alias", "GetStructField")
_MOST_PARTS = 1_000
"""Of one record: each is a row in memory and a record in one transaction."""
_NOTHING: Mapping[str, str | None] = MappingProxyType({})
_OF_THE_MOMENT = ("CurrentTimestamp", "CurrentDate", "CurrentTime", "LocalTimestamp", "Now", "CurrentBatchTimestamp")


def route(pipeline: Pipeline, catalog: Catalog) -> Route:
    """From which topic to which."""
    source, target = catalog.topic(pipeline.source), catalog.topic(pipeline.target)
    return Route(
        pipeline.name, source.name, target.name, source.dead_letter_topic, target.is_filtered, target.has_parts
    )


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
            return outgoing(derived(self._pipeline, looked_up, self._faults), value, unmatched)

        return rows


def derived(pipeline: Pipeline, looked_up: DataFrame, faults: Sequence[Fault] = ()) -> DataFrame:
    """What the pipeline makes of events with what was looked up, and beside it the platform's columns: `unmatched`, and those with two
    underscores before their name, which the function does not see. Bad records, those with a `__reason`, pass its filters, and a good
    one with a fault becomes one. Where it makes several events of one, `__part` numbers them, from 0 on, and `__parts` says how many
    there are; a bad record is one row.
    """
    given = looked_up.select(
        [name for name in looked_up.columns if name not in _PLATFORM and not name.startswith("__")]
    )
    made = pipeline(given)
    if any(step.nodeName() == EXPLODE for step in steps(made, given)):
        return carrying(made, given, looked_up, "__reason", functools.partial(_in_parts, faults))
    return set_aside(carrying(made, given, looked_up, "__reason"), faults)


def _in_parts(faults: Sequence[Fault], whole: DataFrame) -> DataFrame:
    """A row for each element of a record's array; one for a bad record, and none for a good one without elements."""
    count = F.array_size(ARRAY)
    error = F.concat(F.lit("the pipeline makes "), count, F.lit(f" records of it, at most {_MOST_PARTS} fit"))
    checked = set_aside(whole, [*faults, Fault("TooMany", count > _MOST_PARTS, error)])
    array = F.when(F.col("__reason").isNull(), F.col(ARRAY))
    numbered = checked.withColumns({ARRAY: array, "__parts": F.array_size(array)})
    rows = numbered.select("*", F.posexplode_outer(ARRAY).alias("__part", ELEMENT)).drop(ARRAY)
    return rows.where(F.col("__reason").isNotNull() | F.col("__part").isNotNull())


def faults(
    pipeline: Pipeline, catalog: Catalog, unchanged: Collection[str], exploded: Mapping[str, str | None] = _NOTHING
) -> list[Fault]:
    """What can be wrong with that which the function has computed, and no record of the target's may have. Of the fields that come
    of exploding an array, `exploded` says as which field of its elements; None: they are the elements.
    """
    schema = catalog.schema(pipeline.target)
    found = []
    if required := sorted(set(never_null(schema)).difference(never_null(catalog.schema(pipeline.source)), _PLATFORM)):
        lacking = F.concat_ws(", ", *[F.when(_is_null(name, exploded), name) for name in required])
        error = F.concat(F.lit("the schema has no null for what the pipeline makes of the record: "), lacking)
        found.append(Fault("NullField", lacking != "", error))
    if texts := [
        name for name, kind in _kinds(schema).items() if kind == "string" and name not in {*unchanged, *_PLATFORM}
    ]:
        size = _bytes_of(texts, exploded)
        error = F.concat(
            F.lit("the pipeline computes texts of "), size, F.lit(f" bytes, at most {COMPUTED_TEXT_BYTES} fit")
        )
        found.append(Fault("TooLong", size > COMPUTED_TEXT_BYTES, error))
    return found


def _is_null(name: str, exploded: Mapping[str, str | None]) -> Column:
    if name not in exploded:
        return F.col(name).isNull()
    return F.exists(ARRAY, lambda element: _field(element, exploded[name]).isNull())


def _bytes_of(names: Sequence[str], exploded: Mapping[str, str | None]) -> Column:
    """Of these texts together; of an array's those of the element with the most."""

    def together(texts: Sequence[Column]) -> Column:
        return functools.reduce(operator.add, [F.coalesce(F.octet_length(text), F.lit(0)) for text in texts], F.lit(0))

    size = together([F.col(name) for name in names if name not in exploded])
    if inner := [exploded[name] for name in names if name in exploded]:
        sizes = F.transform(ARRAY, lambda element: together([_field(element, each) for each in inner]))
        size = size + F.coalesce(F.array_max(sizes), F.lit(0))
    return size


def _field(element: Column, name: str | None) -> Column:
    return element if name is None else element[name]


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
    found = faults(pipeline, catalog, kept, _exploded_fields(made, given))
    return Checked(chosen, given, kept, used(chosen, given), found)


def _looked_up(pipeline: Pipeline, catalog: Catalog, source: Mapping[str, DataType]) -> dict[str, DataType]:
    """The fields that lookups fill in, and their types."""
    found: dict[str, DataType] = {}
    for lookup in pipeline.lookups:
        contract = catalog.dimension(lookup.dimension)
        of = {column.name: _KINDS[column.type] for column in contract.columns}
        wrong = [f"{lookup.dimension} has no column {each}" for each in lookup.fields.values() if each not in of]
        wrong += [f"{each} is filled in already" for each in lookup.fields if each in found or each in source]
        by, key = lookup.by_fields, contract.key
        if len(by) != len(key):
            wrong.append(
                f"{lookup.dimension} has the key {', '.join(key)}, it looks up by {', '.join(by)}: name one field for each"
            )
        elif len({*by}) < len(by):
            # Spark would filter the dimension's rows by it, and a kept broadcast bears no filter.
            wrong.append(f"it looks up by {', '.join(by)}: name each field once")
        for field, column in zip(by, key, strict=False):
            if field not in source:
                wrong.append(f"{pipeline.source} has no field {field}")
            elif source[field] != of[column]:
                kinds = source[field].simpleString(), of[column].simpleString()
                wrong.append(f"{field} is {kinds[0]}, the key column {column} of {lookup.dimension} is {kinds[1]}")
        if not _LOOKUP_NAME.fullmatch(lookup.name) or [each.found for each in pipeline.lookups].count(lookup.found) > 1:
            wrong.append("its name is not one of its own, of lower-case words with points between")
        if wrong:
            raise PipelineUnfit(f"{pipeline.name}: lookup {lookup.name}: {'; '.join(wrong)}")
        found |= {field: of[column] for field, column in lookup.fields.items()}
    return found


def _exploded_fields(made: DataFrame, given: DataFrame) -> dict[str, str | None]:
    """Which columns come of an explode, and as which field of the elements."""
    found: dict[str, str | None] = {}
    for step in steps(made, given):
        if step.nodeName() == EXPLODE:
            is_inline = kind_of(step.generator()) == INLINE
            own = [str(each.name()) for each in items(step.generatorOutput())]
            return found | {name: name if is_inline else None for name in own}
        found |= {name: name for name in _taken_out(step)}
    return {}


def _taken_out(step: Any) -> list[str]:
    """The columns of a step that are fields of a struct."""
    aliases = [each for each in items(step.expressions()) if kind_of(each) == "Alias"]
    return [str(each.name()) for each in aliases if kind_of(each.child()) == "GetStructField"]


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
        found = list(steps(made, given))
        explodes = [step.nodeName() for step in found].count(EXPLODE)
        if target.has_parts and explodes != 1:
            raise PipelineUnfit(
                f"{pipeline.name} explodes {explodes} arrays, and the contract of {target.name} says records: many: explode one, or write "
                "records: each or some there"
            )
        is_above = target.has_parts
        for step in found:
            if step.nodeName() == FILTER and not target.is_filtered:
                raise PipelineUnfit(
                    f"{pipeline.name} leaves records out, and the contract of {target.name} promises one for each: write records: some there, "
                    "or keep them all"
                )
            if step.nodeName() == EXPLODE:
                is_above = False
                _check_explode(pipeline, step, target)
            elif is_above:
                _check_above_explode(pipeline, step)
            for each in expressions(step):
                _check_expression(pipeline, each)
    except NotRowByRow as error:
        raise PipelineUnfit(
            f"{pipeline.name} has a step that needs more than one row, {error}: it can only filter rows, explode an array, and add, choose "
            "and rename columns"
        ) from error


def _check_explode(pipeline: Pipeline, step: Any, target: TopicContract) -> None:
    if not target.has_parts:
        raise PipelineUnfit(
            f"{pipeline.name} makes several records of one, and the contract of {target.name} promises one at most: write records: many "
            "there"
        )
    kind = kind_of(step.generator())
    is_array = kind == INLINE or str(step.generator().children().head().dataType().typeName()) == "array"
    if kind not in ("Explode", INLINE) or not is_array or step.outer():
        raise PipelineUnfit(
            f"{pipeline.name}: {step.generator()}: only explode and inline of an array number the records"
        )


def _check_above_explode(pipeline: Pipeline, step: Any) -> None:
    """Whether a record is good is known before it becomes several: it is sent with all of them, or is one dead letter."""
    is_other = step.nodeName() == FILTER or {kind_of(each) for each in expressions(step)} - set(_TAKING_OUT)
    names = [] if is_other else [_names(each) for each in items(step.expressions()) if kind_of(each) == "Alias"]
    renamed = [f"{before} to {after}" for before, after in names if before != after]
    if is_other or renamed:
        what = f"renames {', '.join(renamed)}" if renamed else "filters or computes"
        raise PipelineUnfit(
            f"{pipeline.name} {what} after it has exploded an array: filter, compute and name before, in the array's elements"
        )


def _names(alias: Any) -> tuple[str, str]:
    """Of a column, or of a struct's field, and that which it gets."""
    child = alias.child()
    before = child.extractFieldName() if kind_of(child) == "GetStructField" else child.name()
    return str(before), str(alias.name())


def _check_expression(pipeline: Pipeline, each: Any) -> None:
    kind = kind_of(each)
    if kind.endswith("Subquery"):
        raise PipelineUnfit(f"{pipeline.name} reads another table by {each}: use a lookup")
    if "Python" in kind:
        raise PipelineUnfit(f"{pipeline.name} calls a Python function for each row, {each}: write it as an expression")
    if kind in _RAISING:
        raise PipelineUnfit(
            f"{pipeline.name}: {each} stops the pipeline at a record, for good: leave a field null, which makes a dead letter where "
            "the schema has no null for it"
        )
    if kind in _LENGTHS and not all(child.foldable() for child in items(each.children())[_LENGTHS[kind]]):
        raise PipelineUnfit(
            f"{pipeline.name}: {each} is as long as a field says, and one record could fill the memory: give a length of its own"
        )
    if kind in _OF_THE_MOMENT or not each.deterministic():
        raise PipelineUnfit(
            f"{pipeline.name}: {each} is another value each time, and a record that is made again must be the same one: "
            "take it from the event"
        )


def _event(spark: SparkSession, schema: str) -> StructType:
    """An Avro schema as Spark has it."""
    event = spark.range(0).select(from_avro(F.lit(None).cast("binary"), schema).alias("event")).schema["event"].dataType
    assert isinstance(event, StructType)
    return event

"""What a pipeline makes of raw records: `Derivation`."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

import structlog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from contracts.definitions.catalog import Catalog
from contracts.errors import NotAProducer
from contracts.servers.own_schema import OwnSchema
from contracts.servers.registry import Registry
from spark.derivation.faults import PLATFORM, Fault, set_aside
from spark.derivation.fitness import check
from spark.lookups.dimensions import Dimension
from spark.lookups.enriched_value import EnrichedValue
from spark.lookups.join import look_up
from spark.pipeline import Pipeline
from spark.records.cases import first_of
from spark.records.decode import events
from spark.records.schemas import WriterSchemas
from spark.runtime.internals.plans import ARRAY, ELEMENT, carrying
from spark.sinks.kafka.sink import BRANCH, MOST_PARTS, Route, ToRows, outgoing

_log = structlog.get_logger(__name__)

_MOST_PARTS_BYTES = 64 << 20
"""Of one record, which lie in one transaction; counted as if each part were as long as the raw record."""


def is_stateful(pipeline: Pipeline, catalog: Catalog) -> bool:
    """Whether it keeps a state. Of a branch nothing does: one that would by its contracts is refused before it starts."""
    return not pipeline.branches and catalog.topic(pipeline.target).is_stateful


def route(pipeline: Pipeline, catalog: Catalog, of: str | None = None) -> Route:
    """From which topic, the first that it reads or `of` that one, to which."""
    source, target = catalog.topic(of or pipeline.source), catalog.topic(pipeline.targets[0])
    if branches := tuple((name, catalog.topic(each).name) for name, each in pipeline.branches.items()):
        # Each of its topics has only some of the records.
        return Route(pipeline.name, source.name, "", source.dead_letter_topic, filters=True, branches=branches)
    return Route(
        pipeline.name,
        source.name,
        target.name,
        source.dead_letter_topic,
        filters=target.is_filtered or target.is_stateful,
        parts=target.has_parts,
        late=target.late_topic or "",
        stateful=target.is_stateful,
    )


def target_schemas(
    pipeline: Pipeline, catalog: Catalog, registry: Registry, producer: str | None = None
) -> list[OwnSchema]:
    """The schema of each target, registered. Raises NotAProducer if a contract does not list the `producer`, the pipeline if there is none."""
    who = producer or pipeline.name
    for target in map(catalog.topic, pipeline.targets):
        if who not in target.producers:
            raise NotAProducer(
                f"{who} is no producer of {target.name}; its contract lists {', '.join(target.producers)}: add {who} there"
            )
    return [OwnSchema(registry, catalog.topic(each).subject, catalog.schema(each)) for each in pipeline.targets]


class Derivation:
    """Decodes raw records, looks up, calls the pipeline's function and encodes what it made."""

    def __init__(
        self, spark: SparkSession, pipeline: Pipeline, catalog: Catalog, *schema_ids: int, encode_once: bool = True
    ) -> None:
        """`schema_ids` are those of the targets' schemas. With `encode_once`, what a lookup fills in is encoded with the row of the dimension;
        not of a branch, whose topics have a schema each.

        Raises PipelineUnfit, and ContractError if the schema has no null for a field that a lookup fills in.
        """
        checked = check(spark, pipeline, catalog)
        looked_up = {field for lookup in pipeline.lookups for field in lookup.fields}
        encode_once = encode_once and not pipeline.branches
        if encode_once and (changed := sorted(looked_up & set(checked.made.columns) - checked.unchanged)):
            _log.info("encoded record by record", query=pipeline.name, fields=changed, why="the function changes them")
        unchanged, used = (checked.unchanged, checked.used) if encode_once else (frozenset[str](), looked_up)
        if pipeline.branches:
            used = checked.used | looked_up.intersection(checked.made.columns)
        self._pipeline = pipeline
        self._values = [
            EnrichedValue(catalog.schema(each), schema_id, pipeline.lookups, unchanged, used)
            for each, schema_id in zip(pipeline.targets, schema_ids, strict=True)
        ]
        self._faults = checked.faults
        self._parts = any(catalog.topic(each).has_parts for each in pipeline.targets)

    def sides(self, dimensions: Mapping[str, Dimension]) -> list[DataFrame]:
        """What `to_rows` joins."""
        # Nothing is encoded in those of a branch, so they are the same for all of its topics.
        return self._values[0].sides(dimensions)

    def to_rows(
        self, schemas: WriterSchemas, sides: Sequence[DataFrame], dimensions: Mapping[str, Dimension]
    ) -> ToRows:
        """Raw records to rows of `spark.sinks.kafka.sink.outgoing`; the `sides` are of these `dimensions`."""
        values, unmatched = [each.column(dimensions) for each in self._values], F.array_join("unmatched", ",")
        branches = self._pipeline.branches
        value = values[0]
        if branches:
            value = first_of((F.col(BRANCH) == name, each) for name, each in zip(branches, values, strict=True))

        def rows(raw: DataFrame) -> DataFrame:
            looked_up = look_up(events(raw, schemas), self._pipeline.lookups, sides)
            made = derived(self._pipeline, looked_up, self._faults, parts=self._parts)
            return outgoing(made, value, unmatched, parts=self._parts, branches=bool(branches))

        return rows


def derived(
    pipeline: Pipeline, looked_up: DataFrame, faults: Sequence[Fault] = (), *, parts: bool = False
) -> DataFrame:
    """What the pipeline makes of events with what was looked up, and beside it the platform's columns: `unmatched`, and those with two
    underscores before their name, which the function does not see. Bad records, those with a `__reason`, pass its filters, and a good
    one with a fault becomes one. Where it makes `parts`, several events of one, `__part` numbers them, from 0 on, and `__parts` says how
    many there are; a bad record is one row. Of a branch a good one without a name in `branch` is left out.
    """
    given = looked_up.select([name for name in looked_up.columns if name not in PLATFORM and not name.startswith("__")])
    made = pipeline(given)
    if parts:
        return carrying(made, given, looked_up, "__reason", functools.partial(_in_parts, faults))
    whole = set_aside(carrying(made, given, looked_up, "__reason"), faults)
    return whole.where(F.col("__reason").isNotNull() | F.col(BRANCH).isNotNull()) if pipeline.branches else whole


def _in_parts(faults: Sequence[Fault], whole: DataFrame) -> DataFrame:
    """A row for each element of a record's array; one for a bad record, and none for a good one without elements."""
    count, size = F.coalesce(F.array_size(ARRAY), F.lit(0)), F.octet_length("__record.value")
    # A record that nothing is made of has no faults.
    own = [Fault(each.reason, (count > 0) & each.is_so, each.error) for each in faults]
    for is_so, most in (
        (count > MOST_PARTS, f" records of it, at most {MOST_PARTS} fit"),
        (count * size > _MOST_PARTS_BYTES, f" records of it, and its own bytes times that may be {_MOST_PARTS_BYTES}"),
    ):
        own.append(Fault("TooMany", is_so, F.concat(F.lit("the pipeline makes "), count, F.lit(most))))
    checked = set_aside(whole, own)
    array = F.when(F.col("__reason").isNull(), F.col(ARRAY))
    numbered = checked.withColumns({ARRAY: array, "__parts": F.array_size(array)})
    rows = numbered.select("*", F.posexplode_outer(ARRAY).alias("__part", ELEMENT)).drop(ARRAY)
    return rows.where(F.col("__reason").isNotNull() | F.col("__part").isNotNull())

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
from spark.records.decode import events
from spark.records.schemas import WriterSchemas
from spark.runtime.internals.plans import ARRAY, ELEMENT, carrying
from spark.sinks.kafka.sink import MOST_PARTS, Route, ToRows, outgoing

_log = structlog.get_logger(__name__)

_MOST_PARTS_BYTES = 64 << 20
"""Of one record, which lie in one transaction; counted as if each part were as long as the raw record."""


def route(pipeline: Pipeline, catalog: Catalog, of: str | None = None) -> Route:
    """From which topic, the first that it reads or `of` that one, to which."""
    source, target = catalog.topic(of or pipeline.source), catalog.topic(pipeline.target)
    return Route(
        pipeline.name,
        source.name,
        target.name,
        source.dead_letter_topic,
        filters=target.is_filtered or target.is_stateful,
        parts=target.has_parts,
        late=target.late_topic or "",
    )


def target_schema(pipeline: Pipeline, catalog: Catalog, registry: Registry, producer: str | None = None) -> OwnSchema:
    """The target's schema, registered. Raises NotAProducer if its contract does not list the `producer`, the pipeline if there is none."""
    target, who = catalog.topic(pipeline.target), producer or pipeline.name
    if who not in target.producers:
        raise NotAProducer(f"{who} is no producer of {target.name}; its contract lists {', '.join(target.producers)}")
    return OwnSchema(registry, target.subject, catalog.schema(pipeline.target))


class Derivation:
    """Decodes raw records, looks up, calls the pipeline's function and encodes what it made."""

    def __init__(
        self, spark: SparkSession, pipeline: Pipeline, catalog: Catalog, schema_id: int, *, encode_once: bool = True
    ) -> None:
        """`schema_id` is that of the target's schema. With `encode_once`, what a lookup fills in is encoded with the row of the dimension.

        Raises PipelineUnfit, and ContractError if the schema has no null for a field that a lookup fills in.
        """
        checked, schema = check(spark, pipeline, catalog), catalog.schema(pipeline.target)
        looked_up = {field for lookup in pipeline.lookups for field in lookup.fields}
        if encode_once and (changed := sorted(looked_up & set(checked.made.columns) - checked.unchanged)):
            _log.info("encoded record by record", query=pipeline.name, fields=changed, why="the function changes them")
        unchanged, used = (checked.unchanged, checked.used) if encode_once else (frozenset[str](), looked_up)
        self._pipeline = pipeline
        self._value = EnrichedValue(schema, schema_id, pipeline.lookups, unchanged, used)
        self._faults = checked.faults
        self._parts = catalog.topic(pipeline.target).has_parts

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
            made = derived(self._pipeline, looked_up, self._faults, parts=self._parts)
            return outgoing(made, value, unmatched, parts=self._parts)

        return rows


def derived(
    pipeline: Pipeline, looked_up: DataFrame, faults: Sequence[Fault] = (), *, parts: bool = False
) -> DataFrame:
    """What the pipeline makes of events with what was looked up, and beside it the platform's columns: `unmatched`, and those with two
    underscores before their name, which the function does not see. Bad records, those with a `__reason`, pass its filters, and a good
    one with a fault becomes one. Where it makes `parts`, several events of one, `__part` numbers them, from 0 on, and `__parts` says how
    many there are; a bad record is one row.
    """
    given = looked_up.select([name for name in looked_up.columns if name not in PLATFORM and not name.startswith("__")])
    made = pipeline(given)
    if parts:
        return carrying(made, given, looked_up, "__reason", functools.partial(_in_parts, faults))
    return set_aside(carrying(made, given, looked_up, "__reason"), faults)


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

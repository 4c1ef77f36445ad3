"""`repair`: rows whose dimension row came late, enriched once more and sent as their next revision."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import TableNotFoundError
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType

from contracts.definitions.catalog import Catalog
from contracts.errors import ContractError
from contracts.records.coordinates import pattern
from contracts.records.evolution import resolve
from contracts.servers.brokers import partitions_of, topic_ids, watermarks
from contracts.servers.registry import Registry
from spark.derivation.derivation import derived, target_schemas
from spark.derivation.fitness import check
from spark.lookups.dimensions import Dimensions, stamped_versions
from spark.lookups.join import look_up, sides
from spark.pipeline import Pipeline
from spark.records.schemas import never_null
from spark.records.wire import wire_value
from spark.runtime.errors import PipelineUnfit, RepairFailed
from spark.runtime.settings import SparkSettings
from spark.sinks.delta.lake_table import check_topics
from spark.sinks.delta.latest import LATEST
from spark.sinks.kafka.emission import Emission, Outgoing, transactions
from spark.sinks.kafka.sink import Route

_LOOK_SECONDS = 0.5
_PLAIN = ("string", "int", "long", "float", "double", "boolean")
"""Avro types whose default JSON says as Spark does."""
_TIMEOUT_SECONDS = 30.0
_LAST_REVISION = 2**31 - 1
"""An Avro int has no greater one."""
_ROWS_AT_ONCE = 20_000
_BYTES_AT_ONCE = 64 << 20
"""How much is enriched at a time: as many rows as a second brings, and of large ones what the driver can hold."""


@dataclass(slots=True)
class Progress:
    """How far a repair is, counts of rows: those that lack a lookup, those of them that have it by now, and those that were sent
    and committed; `by_lookup`: which lookups are new; `untold`: those that lack a field which was added later, and whose raw record the lake does
    not have.
    """

    unmatched: int = 0
    repairable: int = 0
    sent: int = 0
    by_lookup: Counter[str] = field(default_factory=Counter)
    untold: int = 0


OnProgress = Callable[[Progress], None]


def refuse_branch(pipeline: Pipeline) -> None:
    """Raises PipelineUnfit if it writes several topics."""
    if pipeline.branches:
        raise PipelineUnfit(
            f"{pipeline.name} writes each record to one of {', '.join(pipeline.targets)}, and what a row lacked may decide to which: no repair "
            "of a branch"
        )


class Repair:
    """Reads the lake, where every row stays, and sends to the topic, from which the lake takes revisions in.

    A row that would lose a lookup which it has, because the dimension has it no more, is left as it is. A field that was added to the topic later is
    null in a row of before: it is taken from the raw record's row, and without that the row is left as it is, too.
    """

    def __init__(
        self, spark: SparkSession, pipeline: Pipeline, settings: SparkSettings, catalog: Catalog, registry: Registry
    ) -> None:
        """Raises NotAProducer if the topic's contract does not list `repair`, ContractError if it asks for no table, PipelineUnfit."""
        refuse_branch(pipeline)
        checked = check(spark, pipeline, catalog)
        source, target = catalog.topic(pipeline.source), catalog.topic(pipeline.target)
        if target.has_parts:
            raise PipelineUnfit(
                f"{pipeline.name} makes several records of one, which are not made again one by one: no repair of {target.name}"
            )
        (own,) = target_schemas(pipeline, catalog, registry, "repair")
        self._pipeline = pipeline
        self._faults = checked.faults
        self._given = fields_again(pipeline, catalog, checked.given, checked.used)
        self._value, self._never_null = wire_value(own.schema, own.id), never_null(own.schema)
        # A field has a null that is none of its own only if it was added later, and then its value is the raw record's.
        self._defaults = defaults(catalog.schema(pipeline.source), checked.given.schema)
        versions = catalog.schemas(pipeline.target)
        absent = frozenset[str]().union(*(resolve(versions[-1], each).absent for each in versions))
        self.added_later = tuple(name for name, kind in self._given.items() if kind is None and name in absent)
        """Fields that are carried on, and that an earlier version of the target's schema lacks."""
        self._matched = matched(pipeline, checked.unchanged.intersection(checked.made.columns))
        if target.lake is None:
            raise ContractError(f"the contract of {target.name} asks for no table, whose rows could be repaired")
        self._spark = spark
        self._s3, self._source = settings.s3, source
        self._kafka = settings.kafka.client_config()
        self._target = target
        self._route = Route(f"repair/{pipeline.name}", source.name, target.name, target.dead_letter_topic)
        self._table = target.lake.table
        self._dimensions = Dimensions(spark, settings.s3, [catalog.dimension(name) for name in pipeline.dimensions])

    def look(self, since: datetime | None, wait_seconds: float) -> Progress:
        """What a repair would find now; sends nothing, and disturbs no repair that runs.

        `since`: only rows of this event time or later. Raises RepairFailed if the lake does not reach the topic's end of now
        within `wait_seconds`, PositionsDisagree if a topic was made anew behind the table, DimensionUnreadable if a dimension is missing.
        """
        progress = Progress()
        for _ in self._repaired(self._caught_up(wait_seconds), since, progress):
            pass
        return progress

    def run(
        self,
        since: datetime | None,
        wait_seconds: float,
        on_progress: OnProgress,
        *,
        rows_at_once: int = _ROWS_AT_ONCE,
    ) -> Progress:
        """Send a further revision of each row that has a lookup by now; returns when all are committed.

        Whoever is repairing is fenced first, and what it had committed is in the table when that has reached the topic's end
        of then. So nothing is sent twice, however often this is killed and run again. `on_progress` is told after each
        piece of the rows. Raises RepairFailed and PositionsDisagree as `look` does, and RepairFailed when the brokers refuse.
        """
        progress = Progress()
        with Emission(self._kafka, self._route) as emission:
            table = self._caught_up(wait_seconds)
            for records in self._repaired(table, since, progress, rows_at_once):
                for together in transactions(records):
                    emission.commit(together)
                    progress.sent += len(together)
                on_progress(progress)
        return progress

    def _caught_up(self, wait_seconds: float) -> DeltaTable:
        """The table, in a version that has all that is in the topic now."""
        ends = self._ends()
        try:
            table = self._open(self._table)
        except TableNotFoundError as error:
            raise RepairFailed(
                f"there is no table s3://{self._s3.bucket}/lake/{self._table} yet: the lake makes it"
            ) from error
        until = time.monotonic() + wait_seconds
        while True:
            table.update_incremental()
            # Asked for after the ends: those of another topic say nothing of what the table has.
            check_topics(table, self._target, self._topic_ids())
            taken = {each: table.transaction_version(f"headrace/{self._target.name}/{each}") or 0 for each in ends}
            behind = {each: end for each, end in ends.items() if taken[each] < end}
            if not behind:
                return table
            if time.monotonic() > until:
                where = ", ".join(f"partition {each} at offset {taken[each]} of {end}" for each, end in behind.items())
                raise RepairFailed(
                    f"the lake has not taken in what is in {self._target.name} after {wait_seconds:g} s: {where}. Is it "
                    "running? --wait SECONDS waits longer"
                )
            time.sleep(_LOOK_SECONDS)

    def _ends(self) -> dict[int, int]:
        """The ends of all partitions that hold anything, open transactions included: they may be an earlier repair's."""
        asker = Consumer({**self._kafka, "group.id": "repair", "isolation.level": "read_uncommitted"})
        try:
            partitions = partitions_of(asker, self._target.name, _TIMEOUT_SECONDS)
            marks = {each: watermarks(asker, self._target.name, each, _TIMEOUT_SECONDS) for each in partitions}
        finally:
            asker.close()
        return {each: high for each, (low, high) in marks.items() if high > low}

    def _topic_ids(self) -> dict[str, str]:
        names = {self._target.name, self._target.derived_from or self._target.name}
        return topic_ids(AdminClient({**self._kafka}), names, _TIMEOUT_SECONDS)

    def _open(self, table: str) -> DeltaTable:
        return DeltaTable(f"s3://{self._s3.bucket}/lake/{table}", storage_options=self._s3.delta_options())

    def _repaired(
        self, table: DeltaTable, since: datetime | None, progress: Progress, rows_at_once: int = _ROWS_AT_ONCE
    ) -> Iterator[list[Outgoing]]:
        """The records of all rows that can be repaired, so many rows at a time; counts them."""
        for rows in self._unmatched(table, since, rows_at_once):
            progress.unmatched += rows.num_rows
            told = rows.filter(pc.invert(rows["__untold"]))
            progress.untold += rows.num_rows - told.num_rows
            found = self._enriched(told)
            progress.repairable += len(found)
            progress.by_lookup.update(name for row in found for name in row["found"])
            yield [Outgoing(row["coordinate"], row["key"], row["value"], row["ce_time"]) for row in found]

    def _unmatched(self, table: DeltaTable, since: datetime | None, rows_at_once: int) -> Iterator[pa.Table]:
        """The newest revisions that lack a lookup, in the order of the topic: so those of one key stay in theirs."""
        of_row = {name: f'"{name}"' for name, kind in self._given.items() if kind is None}
        lacks = " OR ".join(f'"{name}" IS NULL' for name in self.added_later) or "false"
        rows, query = LATEST.format(table="rows"), QueryBuilder().register("rows", table)
        if (raw := self._raw_rows()) is not None:
            query = query.register("raw", raw)
            of_raw = ", ".join(f'"{name}" AS "__raw_{name}"' for name in self.added_later)
            rows = f"({rows}) LEFT JOIN (SELECT coordinate AS __raw, {of_raw} FROM raw) ON coordinate = __raw"
            of_row |= {name: f'coalesce("{name}", "__raw_{name}") AS "{name}"' for name in self.added_later}
            lacks = f"({lacks}) AND __raw IS NULL"
        else:
            rows = f"({rows})"
        columns = [*of_row.values(), "coordinate", "revision", "unmatched"]
        columns += [f"{self._matched} AS __matched", f"{lacks} AS __untold"]
        where = f"array_length(unmatched) > 0 AND coalesce(revision, 0) < {_LAST_REVISION}"
        # A stranger's record has a row, too, and no raw record.
        where += f" AND regexp_like(coordinate, '{pattern(self._route.source)}')"
        if since is not None:
            where += f" AND \"{self._target.occurred_at}\" >= to_timestamp('{since.astimezone(UTC).isoformat()}')"
        found = query.execute(
            f"SELECT {', '.join(columns)} FROM {rows} WHERE {where} ORDER BY record_partition, record_offset"
        )
        held: list[pa.Table] = []
        for batch in map(_as_spark_takes_it, map(pa.record_batch, found)):
            held.append(batch)
            if (
                sum(each.num_rows for each in held) >= rows_at_once
                or sum(each.nbytes for each in held) >= _BYTES_AT_ONCE
            ):
                yield from _cut(held, rows_at_once)
                held = []
        yield from _cut(held, rows_at_once)

    def _raw_rows(self) -> DeltaTable | None:
        """The raw topic's table, if it is asked for a field; None if there is none that has all of them. Raises PositionsDisagree."""
        source = self._source
        if not self.added_later or source.lake is None:
            return None
        try:
            table = self._open(source.lake.table)
        except TableNotFoundError:
            return None
        # A raw topic that has been retired is not there; its table is.
        ids = {name: found for name, found in self._topic_ids().items() if name == source.name}
        check_topics(table, source, ids)
        there = {each.name for each in table.schema().fields}
        return table if there.issuperset(self.added_later) else None

    def _of_row(self, name: str) -> Column:
        default = self._defaults.get(name)
        return F.col(name) if default is None else F.coalesce(name, default).alias(name)

    def _enriched(self, rows: pa.Table) -> list[dict[str, Any]]:
        """Those of the rows that can be repaired, as the pipeline would make them now: coordinate, key, value, ce_time, `found`."""
        held = self._dimensions.newest()
        events = self._spark.createDataFrame(rows).select(
            *[
                self._of_row(name) if kind is None else F.lit(None).cast(kind).alias(name)
                for name, kind in self._given.items()
            ],
            F.col("coordinate").alias("__coordinate"),
            F.coalesce("revision", F.lit(0)).alias("__revision"),
            F.col("unmatched").alias("__was_unmatched"),
            "__matched",
        )
        lookups = self._pipeline.lookups
        made = derived(self._pipeline, look_up(events, lookups, sides(lookups, held))).withColumns(
            {"dimension_versions": stamped_versions(held), "revision": F.col("__revision") + 1}
        )
        key = F.lit(None) if self._target.key is None else F.col(self._target.key)
        # One that would be no record of the topic now stays as it is.
        for fault in self._faults:
            made = made.where(~fault.is_so)
        for name in self._never_null:
            made = made.where(F.col(name).isNotNull())
        repaired = made.where(repairable()).select(
            F.col("__coordinate").alias("coordinate"),
            key.cast("string").cast("binary").alias("key"),
            self._value.alias("value"),
            # The session's zone is UTC.
            F.date_format(self._target.occurred_at, "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'").alias("ce_time"),
            F.array_except("__was_unmatched", "unmatched").alias("found"),
        )
        # Not `collect`: a result that is cut short would be taken for the whole.
        rows_found: list[dict[str, Any]] = repaired.toArrow().to_pylist()
        return rows_found


def fields_again(
    pipeline: Pipeline, catalog: Catalog, given: DataFrame, used: Collection[str]
) -> dict[str, DataType | None]:
    """The source's fields. None of one that a row of the target's table has; the type of any other, which is null then.

    Raises PipelineUnfit if the pipeline needs such a one.
    """
    source, target = (
        [field["name"] for field in catalog.parsed_schema(name)["fields"]]
        for name in (pipeline.source, pipeline.target)
    )
    looked_up = (field for lookup in pipeline.lookups for field in lookup.needs)
    needed = {*used, *looked_up}.intersection(source).difference(target)
    if needed:
        raise PipelineUnfit(
            f"{pipeline.name} needs {', '.join(sorted(needed))}, which {pipeline.target} does not have: no row of its table can be repaired. "
            "Add it there"
        )
    return {name: None if name in target else given.schema[name].dataType for name in source}


def defaults(schema: str, given: StructType) -> dict[str, Column]:
    """Of the `given` fields those that an Avro schema, JSON text, gives a default in place of null: a row of before the field was added has a null
    there, and its readers see the default.
    """
    return {
        field["name"]: F.lit(field["default"]).cast(given[field["name"]].dataType)
        for field in json.loads(schema)["fields"]
        if field["type"] in _PLAIN and "default" in field and field["name"] in given.names
    }


def matched(pipeline: Pipeline, carried: Collection[str]) -> str:
    """A SQL list of the lookups that had a row when the row of the table was made, with nulls between; `carried` are the table's fields that lookups fill
    in, as they fill them in.

    One that was added to the pipeline since is not unmatched in the row, and has filled in nothing. Of one that fills in nothing that is carried,
    its dimension's version tells.
    """
    names = []
    for lookup in pipeline.lookups:
        filled_in = [f'"{each}" IS NOT NULL' for each in lookup.fields if each in carried]
        had = " OR ".join(filled_in) or f"dimension_versions['{lookup.dimension}'] IS NOT NULL"
        names.append(f"CASE WHEN {had} THEN '{lookup.name}' END")
    return f"make_array({', '.join(names)})"


def repairable() -> Column:
    """Of rows with `unmatched` and what it was, `__was_unmatched`: whether a lookup has its row now, and none of those that had one,
    `__matched`, has lost it.
    """
    found, missed = F.array_except("__was_unmatched", "unmatched"), F.array_except("unmatched", "__was_unmatched")
    return (F.size(found) > 0) & ~F.arrays_overlap(missed, F.array_compact("__matched"))


def _cut(batches: list[pa.Table], rows_at_once: int) -> Iterator[pa.Table]:
    """The batches in pieces of so many rows, or bytes."""
    if not batches:
        return
    table = pa.concat_tables(batches)
    for start in range(0, table.num_rows, rows_at_once):
        yield from _halved(table.slice(start, rows_at_once))


def _halved(table: pa.Table) -> Iterator[pa.Table]:
    """In their order; a row that is larger is a piece of its own."""
    if table.nbytes <= _BYTES_AT_ONCE or table.num_rows == 1:
        yield table
        return
    middle = table.num_rows // 2
    yield from _halved(table.slice(0, middle))
    yield from _halved(table.slice(middle))


def _as_spark_takes_it(batch: pa.RecordBatch) -> pa.Table:
    """Texts and bytes, of which DataFusion has views: each batch may have the bytes of all."""
    table = pa.Table.from_batches([batch])
    return table.cast(pa.schema([(column.name, _plain(column.type)) for column in table.schema]))


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_list(kind):
        return pa.list_(_plain(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(_plain(kind.key_type), _plain(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_plain(field.type)) for field in kind])
    if pa.types.is_binary_view(kind):
        return pa.binary()
    return pa.string() if pa.types.is_string_view(kind) else kind

"""`lake`: every topic whose contract asks for it, copied into its Delta table."""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

import structlog
from confluent_kafka import IsolationLevel
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from contracts.definitions.catalog import Catalog
from contracts.definitions.topic import TopicContract
from contracts.errors import ContractError, TopicUnfit
from contracts.servers.brokers import list_offsets, partitions_of, retried, topic_ids
from contracts.servers.provision import check_limits
from contracts.servers.ranges import OffsetRange
from contracts.servers.registry import Registry
from contracts.servers.s3 import LOOK_SECONDS, s3_client
from spark.records.dead_letters import dead_letters
from spark.records.decode import decode
from spark.records.headers import header
from spark.records.schemas import WriterSchemas
from spark.records.topic_schemas import TopicSchemas
from spark.runtime.errors import DeadLettersMiscounted, PositionsDisagree, QueryFailed
from spark.runtime.lease import Lease
from spark.runtime.lifecycle import Lifecycle
from spark.runtime.metrics import DEAD_LETTERS
from spark.runtime.process import process
from spark.runtime.settings import SparkSettings
from spark.runtime.workers.worker_input import map_whole
from spark.sinks.delta.lake_checkpoint import new_checkpoint
from spark.sinks.delta.lake_schema import row_schema, statistics
from spark.sinks.delta.lake_table import TableWriter
from spark.sinks.delta.merged_files import LiveFile
from spark.sinks.delta.newest_rows import NewestPlan, write_newest
from spark.sinks.delta.positions import Positions
from spark.sinks.delta.repeats import highest_offsets, identities, repeats
from spark.sinks.delta.table_files import RESULT, FilePlan, TableFile, write_files
from spark.sinks.delta.upkeep import Upkeep
from spark.sources.kafka import read_topic, write_records
from spark.sources.offsets import offset_ranges

_log = structlog.get_logger(__name__)

_LOOK_SECONDS = 1.0
"""How often the query looks whether enough records for a batch, or the time for one, have come."""

_TIMEOUT_SECONDS = 60.0
"""For the brokers to answer, as long as Spark's own reader gives them."""

_FEW_RECORDS = 50_000
"""A batch of fewer is written by one task: small files cost every reader more than a second core gains here."""

_MOST_KEYS = 100_000
"""Each commit writes all rows of a table of newest records: of more it takes seconds, and each version some MB."""

_PAUSE_SHARE = 0.5
"""Of the time for which a record without value stays: a table that has not moved for longer may have missed some."""
_DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class _Written:
    """What the tasks of a batch have written, not yet committed."""

    files: Sequence[TableFile]
    bad: int
    identities: Sequence[bytes]
    gone: Sequence[LiveFile] = field(default=())
    """Files of the table that these take the place of."""


class LakeTable:
    """One topic → its Delta table, each record exactly once, each raw record's revision exactly once; or the newest record of each key exactly once.

    Every commit carries, with the rows, how far the topic is consumed. What the table has is skipped, so Spark's checkpoint
    decides nothing: each writer begins a new one, where the table says.
    """

    def __init__(
        self,
        spark: SparkSession,
        settings: SparkSettings,
        topic: TopicContract,
        schema: str,
        registry: Registry,
        lifecycle: Lifecycle,
    ) -> None:
        """`schema` is the topic's current one. Raises ContractError if the contract asks for no table."""
        if topic.lake is None:
            raise ContractError(f"the contract of {topic.name} asks for no table")
        self._spark = spark
        self._settings = settings
        self._topic = topic
        self._lake = topic.lake
        self._schema = schema
        self._schemas = TopicSchemas(registry, topic, schema)
        self._lifecycle = lifecycle
        self._query_name = f"lake.{topic.lake.table}"
        self._prefix = f"lake/{topic.lake.table}"
        self._checkpoints = f"checkpoints/lake/{topic.lake.table}"
        self._lease = Lease(
            settings.s3,
            f"leases/lake/{topic.lake.table}",
            settings.lake.lease_seconds,
            resumes=True,
            answer_seconds=LOOK_SECONDS,
        )
        self._s3 = s3_client(settings.s3)
        # `log_level`: a broker that is away is told of by whoever asks.
        self._admin = AdminClient({**settings.kafka.client_config(), "log_level": 0})
        self._fields: list[str] = [field["name"] for field in json.loads(schema)["fields"]]
        self._statistics = statistics(topic, self._fields)
        self.path = f"s3a://{settings.s3.bucket}/{self._prefix}"
        self.positions = Positions(topic.name, {})
        self._has_told_size = False

    def acquire(self) -> None:
        """Take the table's lease, unless this has it. Raises TakenOver if another writer is alive."""
        if not self._lease.epoch:
            self._lease.acquire()

    def start(self) -> StreamingQuery:
        """Take the lease, create the table if there is none, and go on from where it is.

        Raises TakenOver if it has a writer, and PositionsDisagree if the last writer's checkpoint has taken in more
        than the table, if the topic was made anew since, or if it lacks records that the table has not, or may lack some that took keys away.
        """
        self.acquire()
        try:
            return self._start()
        except BaseException:
            self._lease.release()
            raise

    def check(self) -> None:
        """Raise TakenOver if this process may not write the table any more."""
        self._lease.check()

    def close(self) -> None:
        """Give the lease back, when the query has ended."""
        self._lease.release()

    def _start(self) -> StreamingQuery:
        partitions, ids = self._partitions(), self._topic_ids()
        if not partitions:
            raise TopicUnfit(f"there is no topic {self._topic.name}: create it (headrace topics create), or restore it")
        schema = row_schema(self._spark, self._schema, newest=self._topic.lands_newest)
        # One that was frozen until now would fence its successor.
        self._lease.check()
        self._writer = TableWriter(self._settings.s3, self._topic, schema, self._statistics, self._lease.epoch, ids)
        self._upkeep = Upkeep(
            self._writer, self._lake.table, self._lake.history_days * 24, files_per_commit=len(partitions)
        )
        positions = self._writer.read_positions(partitions)
        ends = self._ends(partitions)
        self._refuse_forgotten(positions, ends)
        self.positions = positions.within(ends, self._settings.lake.on_data_loss)
        checkpoint = new_checkpoint(self._settings.s3, self._checkpoints, self._lease.epoch, self.positions)
        settings = self._settings.lake
        raw = read_topic(
            self._spark,
            self._settings.kafka,
            self._topic.name,
            starting_offsets=self.positions.starting_offsets(partitions),
            max_offsets_per_trigger=settings.max_offsets_per_trigger,
            options={
                # A full batch need not wait for its time: the trigger alone would let a backlog wait between batches.
                "minOffsetsPerTrigger": str(settings.max_offsets_per_trigger),
                "maxTriggerDelay": f"{round(settings.trigger_seconds * 1000)}ms",
            },
        )
        return (
            raw.writeStream.queryName(self._query_name)
            .option("checkpointLocation", f"s3a://{self._settings.s3.bucket}/{checkpoint}")
            .trigger(processingTime=f"{round(min(_LOOK_SECONDS, settings.trigger_seconds) * 1000)} milliseconds")
            .foreachBatch(self._lifecycle.until_stopped(self.write))
            .start()
        )

    def write(self, batch: DataFrame, batch_id: int) -> None:
        """Take in what the table has not yet; records that can't be decoded go to the dead letters before.

        Having committed nothing, raises TakenOver if this process may not write the table any more, DeadLettersMiscounted if the
        dead letters are not as many as the records that can't be decoded, PositionsDisagree if the topic was made anew.
        """
        ranges = offset_ranges(batch)
        positions = self.positions.after(ranges)
        if positions == self.positions:
            return
        self._lease.check()
        # Only a batch that runs again is filtered: positions in the plan would make it another one for each batch.
        fresh = batch.where(self.positions.beyond()) if self.positions.overlap(ranges) else batch

        def write(schemas: WriterSchemas) -> tuple[_Written, dict[str, int]]:
            decoded = decode(fresh, schemas)
            if self._topic.lands_newest:
                decoded = _by_key(decoded)
                written, highest = self._write_newest(self._rows(decoded, ranges)), dict[str, int]()
            else:
                written, highest = self._write_once(self._rows(decoded, ranges))
            if written.bad:
                self._set_aside(decoded, written.bad, batch_id)
            return written, highest

        written, highest = self._schemas.covering(batch, write, self._lifecycle.stopping)
        # After the records were read: they are of the topic that has this id now, or of the one that was deleted since.
        self._writer.check_topics(self._topic_ids())
        # The commit itself fails if anybody else has made a version; this tells whom to ask.
        self._lease.check()
        self._writer.commit(written.files, positions, highest, written.gone)
        self.positions = positions
        self._upkeep.run(positions)

    def _rows(self, decoded: DataFrame, ranges: Sequence[OffsetRange]) -> DataFrame:
        record, newest = F.col("record"), self._topic.lands_newest
        rows = decoded.select(
            "event",
            "reason",
            header(record["headers"], "ce_id").cast("string").alias("ce_id"),
            *[record[name].alias(name) for name in ("partition", "offset", "timestamp")],
            *([record["key"].alias("key"), record["value"].isNotNull().alias("has_value")] if newest else []),
        )
        if sum(found.end - found.start for found in ranges) < _FEW_RECORDS:
            # One task, so one file for each value of the partition columns.
            return rows.coalesce(1)
        # By one task, too, but it is decoded by as many as there are cores.
        return rows.repartition(1) if newest else rows

    def _write_newest(self, rows: DataFrame) -> _Written:
        """One file with the newest record of each key, of those that the table has and these. A batch that runs again makes the same rows."""
        present = self._writer.files()
        plan = NewestPlan(self._file_plan(), present, self._writer.columns())
        written, same = _written(map_whole(rows, functools.partial(write_newest, plan), RESULT))
        if same:
            return written
        count = sum(json.loads(file.stats)["numRecords"] for file in written.files)
        if count > _MOST_KEYS and not self._has_told_size:
            self._has_told_size = True
            _log.warning(
                "many keys for a table with rows: newest: each commit writes all of them; see the guide of the lake, or take rows: each",
                table=self._lake.table,
                rows=count,
            )
        return replace(written, gone=present)

    def _write_once(self, rows: DataFrame) -> tuple[_Written, dict[str, int]]:
        """Files with each raw record's revision that the table lacks, once; and how far the raw partitions go then."""
        plan = self._file_plan()
        written = _write(rows, plan)
        found = identities(written.identities)
        highest = highest_offsets(found, self._writer)
        if left_out := repeats(found, self._writer):
            _log.warning("repeats left out", table=self._lake.table, records=sum(map(len, left_out.values())))
            # So rare that looking for them before would cost more than writing a batch twice.
            for file in written.files:
                self._s3.delete_object(Bucket=self._settings.s3.bucket, Key=f"{self._prefix}/{file.path}")
            written = _write(rows, replace(plan, left_out=left_out))
        return written, highest

    def _file_plan(self) -> FilePlan:
        return FilePlan(
            self._settings.s3,
            self._prefix,
            self._topic.name,
            self._topic.derived_from,
            self._topic.has_parts,
            self._raw_ends(),
            self._fields,
            self._lake.partition_by,
            self._statistics,
        )

    def _set_aside(self, decoded: DataFrame, bad_count: int, batch_id: int) -> None:
        """Read the batch a second time, for its `bad_count` bad records."""
        # Exact: without a shuffle the tasks that count are the job's last, and each counts once, however often it is tried.
        seen = Observation()
        bad = dead_letters(decoded, self._topic.dead_letter_topic, "lake").observe(
            seen, F.count(F.lit(1)).alias("rows")
        )
        write_records(self._settings.kafka, bad)
        letters: int = seen.get["rows"]
        DEAD_LETTERS.labels(self._query_name).inc(letters)
        _log.warning("records set aside", topic=self._topic.dead_letter_topic, rows=letters)
        # In between, compaction may have removed some that newer records of their keys have replaced.
        if letters > bad_count or (letters < bad_count and not self._topic.is_compacted):
            raise DeadLettersMiscounted(
                f"batch {batch_id} of the table {self._lake.table} had {bad_count} bad records when it was written, but "
                f"{letters} when they went to {self._topic.dead_letter_topic}: {self._topic.name} gave other records the second "
                "time. Nothing of the batch is committed: start again, and it is read anew"
            )

    def _partitions(self) -> list[int]:
        return partitions_of(self._admin, self._topic.name, _TIMEOUT_SECONDS)

    def _raw_ends(self) -> dict[int, int] | None:
        """By partition of the raw topic the offset after its last record, transactions that are open included."""
        raw = self._topic.derived_from
        partitions = [] if raw is None else partitions_of(self._admin, raw, _TIMEOUT_SECONDS)
        return None if raw is None or not partitions else self._offsets(raw, partitions, OffsetSpec.latest())  # type: ignore[no-untyped-call]

    def _ends(self, partitions: Sequence[int]) -> dict[int, tuple[int, int]]:
        """Of each partition of the topic the first offset, and the one after its last record, as `_raw_ends`."""
        low, high = [
            self._offsets(self._topic.name, partitions, spec)
            for spec in (OffsetSpec.earliest(), OffsetSpec.latest())  # type: ignore[no-untyped-call]
        ]
        return {each: (low[each], high[each]) for each in partitions}

    def _refuse_forgotten(self, positions: Positions, ends: Mapping[int, tuple[int, int]]) -> None:
        """Raises PositionsDisagree if a record without value may have come and gone while nobody read: its key would keep its row for ever."""
        if not (self._topic.lands_newest and self._topic.compacted and positions.next_offsets):
            return
        since_ms = round(time.time() * 1000 - _PAUSE_SHARE * self._topic.retention_days * _DAY_MS)
        sent_since = self._offsets(self._topic.name, list(ends), OffsetSpec.for_timestamp(since_ms))
        for partition, (_, end) in sorted(ends.items()):
            taken = positions.next_offsets.get(partition, 0)
            # What comes next was sent since, or nothing has come: so nothing is gone. Of an empty partition the table has no row.
            if not taken or taken >= end or 0 <= sent_since[partition] <= taken:
                continue
            moved_ms = self._writer.moved_ms()
            if moved_ms is None or moved_ms < since_ms:
                raise PositionsDisagree(
                    f"the table {self._lake.table} has {self._topic.name}/{partition} up to offset {taken}, and has not moved for more than half of the "
                    f"{self._topic.retention_days} days for which a record without value stays there: some may be gone, and their keys would keep their rows. "
                    f"Move the folder {self._prefix} away and remove {self._checkpoints}, and the table is filled anew"
                )

    def _offsets(self, topic: str, partitions: Sequence[int], spec: OffsetSpec) -> dict[int, int]:
        return retried(
            lambda: list_offsets(
                self._admin, topic, partitions, spec, IsolationLevel.READ_UNCOMMITTED, _TIMEOUT_SECONDS
            ),
            _TIMEOUT_SECONDS,
        )

    def _topic_ids(self) -> dict[str, str]:
        names = {self._topic.name, self._topic.derived_from or self._topic.name}
        return topic_ids(self._admin, names, _TIMEOUT_SECONDS)


def lake_topics(settings: SparkSettings, catalog: Catalog) -> Sequence[str]:
    """The topics that the settings name, or else whose contracts ask for a table."""
    return settings.lake.topics or [name for name, topic in catalog.topics.items() if topic.lake is not None]


def lake_tables(
    spark: SparkSession,
    settings: SparkSettings,
    catalog: Catalog,
    registry: Registry,
    lifecycle: Lifecycle,
) -> list[LakeTable]:
    """One for each of `lake_topics`. Raises ContractError."""
    chosen = lake_topics(settings, catalog)
    if not chosen:
        raise ContractError("no contract asks for a table: write `lake` into a topic's contract, or do not run this")
    return [
        LakeTable(spark, settings, catalog.topic(name), catalog.schema(name), registry, lifecycle) for name in chosen
    ]


def run_lake(settings: SparkSettings, catalog: Catalog) -> None:
    """Run `lake` until asked to stop. Raises what `run_tables` does, and TopicUnfit."""
    letters = [catalog.topic(topic).dead_letter_topic for topic in lake_topics(settings, catalog)]
    check_limits(settings.kafka, catalog, letters)
    lifecycle = Lifecycle()
    lifecycle.listen()
    with process("lake", settings, lifecycle) as (spark, registry):
        run_tables(lake_tables(spark, settings, catalog, registry, lifecycle), lifecycle)


def run_tables(tables: Sequence[LakeTable], lifecycle: Lifecycle) -> None:
    """Start all, run until asked to stop, and give the leases back. Raises what `LakeTable.start` does, and QueryFailed."""
    with ExitStack() as leases:
        for table in tables:
            leases.callback(table.close)
        # All at once: each may have to watch a holder that was killed, for as long as its lease lasts.
        with ThreadPoolExecutor(len(tables)) as pool:
            list(pool.map(LakeTable.acquire, tables))
        try:
            lifecycle.run([table.start() for table in tables])
        except QueryFailed:
            # A successor takes the checkpoint away: what Spark says then is not why.
            for table in tables:
                table.check()
            raise


def _by_key(decoded: DataFrame) -> DataFrame:
    """Where a table has the newest record of each key, one without value is none that can't be decoded, and one without key has no place."""
    key, value = F.col("record")["key"], F.col("record")["value"]
    is_tombstone, lacks_key = key.isNotNull() & value.isNull(), key.isNull() & F.col("reason").isNull()
    told = {"reason": "NoKey", "error": "the record has no key, of which the table could have the newest"}
    return decoded.withColumns(
        {name: F.when(lacks_key, F.lit(text)).when(~is_tombstone, F.col(name)) for name, text in told.items()}
    )


def _write(rows: DataFrame, plan: FilePlan) -> _Written:
    return _written(map_whole(rows, functools.partial(write_files, plan), RESULT))[0]


def _written(results: DataFrame) -> tuple[_Written, bool]:
    """What the tasks say, and whether they all leave the table as it is."""
    # Not `collect`: a result that is cut short would be taken for the whole.
    found = results.toArrow()
    done = [json.loads(text) for text in found["done"].to_pylist()]
    files = [TableFile(**each) for task in done for each in task["files"]]
    written = _Written(files, sum(task["bad"] for task in done), found["identities"].to_pylist())
    return written, all(task["same"] for task in done)

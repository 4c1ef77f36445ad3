"""A pipeline that aggregates: `Stateful`."""

from __future__ import annotations

import threading

import structlog
from botocore.exceptions import BotoCoreError, ClientError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from contracts.definitions.catalog import Catalog
from contracts.servers.ranges import OffsetRange
from contracts.servers.registry import Registry
from spark.derivation.aggregation import REASON, Aggregation
from spark.derivation.derivation import route, target_schema
from spark.pipeline import Pipeline
from spark.queries.counts import count_rows
from spark.records.decode import unknown_id
from spark.records.decoding_log import DecodingLog
from spark.records.topic_schemas import TopicSchemas
from spark.runtime.errors import QueryFailed, StopRequested
from spark.runtime.internals.dropped import has_dropped
from spark.runtime.internals.plans import settled
from spark.runtime.lifecycle import Lifecycle
from spark.runtime.settings import SparkSettings
from spark.sinks.aggregates.sink import Aggregates
from spark.sinks.kafka.exactly_once import ExactlyOnceSink
from spark.sources.checkpoint_offsets import CheckpointOffsets
from spark.sources.kafka import read_ranges, read_topic, starting_offsets
from spark.sources.offsets import offset_ranges
from spark.sources.source_topic import SourceTopic

_STATE = {
    "spark.sql.streaming.stateStore.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    # A batch writes what it has changed, and not the whole state.
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # Or records would be merged before the late ones are left out, and `aside` would find others.
    "spark.sql.streaming.sessionWindow.merge.sessions.in.local.partition": "false",
    # By default each partition's state takes what memory it likes.
    "spark.sql.streaming.stateStore.rocksdb.boundedMemoryUsage": "true",
    "spark.sql.streaming.stateStore.rocksdb.maxMemoryUsageMB": "128",
}
_PAUSE_SECONDS = 1.0

_log = structlog.get_logger(__name__)


class Stateful:
    """Raw records → groups → the target, batch by batch; and beside them the dead letters and the late records, in the same batch.

    Spark's checkpoint has the state, and is the truth of it. A batch that runs again must give the same rows, so what it is made by is kept
    with the state: the number of state partitions, the schemas by which its records are decoded, and how it groups.
    """

    def __init__(
        self,
        spark: SparkSession,
        pipeline: Pipeline,
        settings: SparkSettings,
        catalog: Catalog,
        registry: Registry,
        lifecycle: Lifecycle,
    ) -> None:
        """Raises NotAProducer if the target's contract does not list the pipeline, PipelineUnfit."""
        source, target = catalog.topic(pipeline.source), catalog.topic(pipeline.target)
        self._session = spark.newSession()
        for name, value in (_STATE | {"spark.sql.shuffle.partitions": str(target.partitions)}).items():
            self._session.conf.set(name, value)
        self._name, self._output = pipeline.name, pipeline.output
        self._settings, self._lifecycle = settings, lifecycle
        self._source = source.name
        self._own = target_schema(pipeline, catalog, registry)
        self._schemas = TopicSchemas(registry, source, catalog.schema(pipeline.source))
        self._aggregation = Aggregation(self._session, pipeline, catalog, self._own.id)
        of_pipeline, live, epoch = route(pipeline, catalog), settings.live, lifecycle.epoch
        plan = self._aggregation.plan
        self._sink = Aggregates(settings.kafka, of_pipeline, target.partitions, plan, epoch, live.on_state_loss)
        # The checkpoint leads, and the group's offsets are compared with it.
        led = live.model_copy(update={"resume_from": "group"})
        self._aside = ExactlyOnceSink(settings.kafka, of_pipeline, led, epoch, lifecycle.notice_seconds)
        self._read = SourceTopic(settings.kafka, source.name)
        self._prefix = f"checkpoints/{pipeline.name}/{target.name}"
        self._checkpoints = CheckpointOffsets(settings.s3, self._prefix)
        self._run = ""
        self._replayed: int | None = None
        """A batch that must be decoded as it was when part of it was written."""
        self._decoded_by = self._schemas.current
        self._query: StreamingQuery | None = None
        self._unknown: int | None = None
        self._begins_anew = False

    def run(self) -> None:
        """Until asked to stop. A schema that is new starts the query anew.

        Raises what ends it: QueryFailed, StateLost, PositionsDisagree, TakenOver, SinkRefused.
        """
        for sink in (self._sink, self._aside):
            threading.Thread(target=sink.keep_offsets, args=[self._lifecycle], name="keep-offsets", daemon=True).start()
        while not self._lifecycle.stopping.is_set():
            query = self.start()
            try:
                self._lifecycle.run([query])
            except QueryFailed:
                if not self._begins_anew:
                    raise
                if self._unknown is not None:
                    self._schemas.look_up(self._unknown, self._lifecycle.stopping, one_by_one=True)

    def start(self) -> StreamingQuery:
        """Start the query. Raises StateLost, PositionsDisagree, TopicUnfit, TakenOver, and StopRequested."""
        stopping = self._lifecycle.stopping
        self._query, self._unknown, self._begins_anew = None, None, False
        while not self._schemas.renew():
            if stopping.wait(_PAUSE_SECONDS):
                raise StopRequested("asked to stop while the registry does not answer")
        self._make_sure_of_the_lease()
        with self._sink.writing, self._aside.writing:
            # With the checkpoint the sink of the groups compares them.
            taken = self._aside.positions(None, stopping)
            begun = self._sink.begin(self._checkpoints, taken)
            self._aside.move_to(begun.kept)
        self._run = begun.run
        self._checkpoints.remove_others(begun.run)
        self._decode(begun.coming, is_begun=begun.is_begun)
        raw = read_topic(
            self._session,
            self._settings.kafka,
            self._source,
            # Heeded only by a run without a checkpoint.
            starting_offsets="earliest" if begun.begins == "first" else starting_offsets(self._source, taken),
            max_offsets_per_trigger=self._settings.live.max_offsets_per_trigger,
        )
        self._query = (
            self._aggregation.groups(raw, self._decoded_by)
            .writeStream.queryName(self._name)
            .outputMode(self._output)
            .option("checkpointLocation", f"s3a://{self._settings.s3.bucket}/{self._prefix}/{begun.run}")
            .trigger(processingTime=f"{round(self._settings.live.trigger_seconds * 1000)} milliseconds")
            .foreachBatch(self._lifecycle.until_stopped(self.write))
            .start()
        )
        return self._query

    def _make_sure_of_the_lease(self) -> None:
        """One that slept, and begins anew, would fence who has taken over. Raises TakenOver, StopRequested."""
        while self._lifecycle.lease is not None:
            try:
                return self._lifecycle.lease.check()
            except (BotoCoreError, ClientError) as error:
                _log.warning("waiting for the object store, which has the lease", query=self._name, error=str(error))
                if self._lifecycle.stopping.wait(_PAUSE_SECONDS):
                    raise StopRequested("asked to stop while the object store does not answer") from error

    def _decode(self, coming: int, *, is_begun: bool) -> None:
        log = DecodingLog(self._settings.s3, f"{self._prefix}/{self._run}/decoding")
        before = log.of(coming, self._schemas.current) if is_begun else None
        self._decoded_by = before or self._schemas.current
        self._replayed = coming if before is not None else None
        if before is None:
            log.keep(coming, self._decoded_by)

    def write(self, batch: DataFrame, batch_id: int) -> None:
        """Write a batch's groups, then what it sets aside."""
        self._own.check()
        self._read.check()
        if batch_id != self._replayed:
            self._schemas.renew()
            if self._schemas.current != self._decoded_by:
                self._begin_anew("there are new schemas", None)
        # Before anything is written: what the checkpoint does not tell can't be told after a restart either.
        ranges, watermark_ms = self._checkpoints.planned(self._run, batch_id, self._source)
        try:
            partitions = self._sink.write(batch, self._aggregation.to_rows, batch_id)
        except Exception as error:
            found = unknown_id(str(error))
            if found is None:
                raise
            self._begin_anew("a record names a schema id not known yet", found)
        self._set_aside([each for each in ranges if each.start < each.end], watermark_ms)
        for partition in partitions:
            if not self._checkpoints.has_state(self._run, partition, batch_id + 1):
                raise QueryFailed(
                    f"the state of partition {partition} after batch {batch_id} is not in the store, which has taken it without an error: "
                    "the batch runs again"
                )

    def _begin_anew(self, why: str, unknown: int | None) -> None:
        _log.info("the query begins anew", query=self._name, why=why, id=unknown)
        self._unknown, self._begins_anew = unknown, True
        raise StopRequested(why)

    def _set_aside(self, ranges: list[OffsetRange], watermark_ms: int) -> None:
        """The dead letters and late records of a batch, and with them the group's offsets: up to there everything is accounted for."""
        if not ranges:
            return
        if self._settings.live.read_once and self._query is not None and not has_dropped(self._query, REASON):
            self._aside.pass_over(ranges)
            return
        raw = settled(read_ranges(self._session, self._settings.kafka, ranges, fail_on_data_loss=True))
        rows = self._aggregation.aside(self._decoded_by, watermark_ms)
        count_rows(self._name, self._aside.write(raw, rows, offset_ranges(raw)))

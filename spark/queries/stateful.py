"""A pipeline that aggregates: `Stateful`."""

from __future__ import annotations

import threading

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from contracts.definitions.catalog import Catalog
from contracts.servers.registry import Registry
from spark.derivation.aggregation import REASON, Aggregation
from spark.derivation.derivation import route, target_schema
from spark.pipeline import Pipeline
from spark.queries.counts import count_rows
from spark.records.decode import unknown_id
from spark.records.topic_schemas import TopicSchemas
from spark.runtime.errors import QueryFailed, StopRequested
from spark.runtime.internals.dropped import has_dropped
from spark.runtime.internals.plans import settled
from spark.runtime.lifecycle import Lifecycle
from spark.runtime.settings import SparkSettings
from spark.sinks.aggregates.sink import Aggregates
from spark.sinks.kafka.exactly_once import ExactlyOnceSink
from spark.sources.checkpoint_offsets import CheckpointOffsets
from spark.sources.kafka import read_ranges, read_topic
from spark.sources.offsets import offset_ranges
from spark.sources.source_topic import SourceTopic

_STATE = {
    "spark.sql.streaming.stateStore.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    # A batch writes what it has changed, and not the whole state.
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # By default each partition's state takes what memory it likes.
    "spark.sql.streaming.stateStore.rocksdb.boundedMemoryUsage": "true",
    "spark.sql.streaming.stateStore.rocksdb.maxMemoryUsageMB": "128",
}


class Stateful:
    """Raw records → groups → the target, batch by batch; and beside them the dead letters and the late records, in the same batch.

    Spark's checkpoint has the state, and is the truth of it. A batch that runs again gives the same rows, so two things must not change
    between two runs of it: what the records are decoded by, which is fixed while a query runs, and the number of state partitions, which the
    checkpoint keeps.
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
        of_pipeline = route(pipeline, catalog)
        live = settings.live
        self._sink = Aggregates(settings.kafka, of_pipeline, lifecycle.epoch, live.on_state_loss)
        self._aside = ExactlyOnceSink(settings.kafka, of_pipeline, live, lifecycle.epoch, lifecycle.notice_seconds)
        self._read = SourceTopic(settings.kafka, source.name)
        self._prefix = f"checkpoints/{pipeline.name}/{target.name}"
        self._checkpoints = CheckpointOffsets(settings.s3, self._prefix)
        self._folder = ""
        self._query: StreamingQuery | None = None
        self._unknown: int | None = None

    def run(self) -> None:
        """Until asked to stop. A schema id that is new starts the query anew.

        Raises what ends it: QueryFailed, StateLost, PositionsDisagree, TakenOver, SinkRefused.
        """
        for sink in (self._sink, self._aside):
            threading.Thread(target=sink.keep_offsets, args=[self._lifecycle], name="keep-offsets", daemon=True).start()
        while not self._lifecycle.stopping.is_set():
            query = self.start()
            try:
                self._lifecycle.run([query])
            except QueryFailed:
                if self._unknown is None:
                    raise
                self._schemas.look_up(self._unknown, self._lifecycle.stopping)
                self._unknown = None

    def start(self) -> StreamingQuery:
        """Start the query. Raises StateLost, PositionsDisagree, TakenOver, and StopRequested."""
        stopping = self._lifecycle.stopping
        while not self._schemas.renew():
            if stopping.wait(1.0):
                raise StopRequested("asked to stop while the registry does not answer")
        self._lifecycle.check_lease()
        run, from_the_first = self._sink.begin(self._checkpoints, self._prefix)
        taken = self._aside.starting_offsets(self._checkpoints, stopping)
        self._folder = f"{self._prefix}/{run}"
        # Heeded only by a run without a checkpoint.
        starting = "earliest" if from_the_first else taken
        raw = read_topic(
            self._session,
            self._settings.kafka,
            self._source,
            starting_offsets=starting,
            max_offsets_per_trigger=self._settings.live.max_offsets_per_trigger,
        )
        self._query = (
            self._aggregation.groups(raw, self._schemas.current)
            .writeStream.queryName(self._name)
            .outputMode(self._output)
            .option("checkpointLocation", f"s3a://{self._settings.s3.bucket}/{self._folder}")
            .trigger(processingTime=f"{round(self._settings.live.trigger_seconds * 1000)} milliseconds")
            .foreachBatch(self._lifecycle.until_stopped(self.write))
            .start()
        )
        return self._query

    def write(self, batch: DataFrame, batch_id: int) -> None:
        """Write a batch's groups, then what it sets aside."""
        self._own.check()
        self._read.check()
        try:
            self._sink.write(batch, self._aggregation.to_rows, batch_id)
        except Exception as error:
            self._unknown = unknown_id(str(error))
            if self._unknown is None:
                raise
            raise StopRequested("a record names a schema id not known yet: the query begins anew") from error
        self._set_aside(batch_id)

    def _set_aside(self, batch_id: int) -> None:
        """The dead letters and late records of a batch, and with them the group's offsets: up to there everything is accounted for."""
        ranges = [
            each for each in self._checkpoints.ranges(self._folder, batch_id, self._source) if each.start < each.end
        ]
        if not ranges:
            return
        if self._settings.live.read_once and self._query is not None and not has_dropped(self._query, REASON):
            self._aside.pass_over(ranges)
            return
        # An operator compares what comes with the watermark of the batch before.
        watermark_ms, _ = self._checkpoints.times_ms(self._folder, batch_id - 1)
        _, batch_ms = self._checkpoints.times_ms(self._folder, batch_id)
        raw = settled(read_ranges(self._session, self._settings.kafka, ranges))
        rows = self._aggregation.aside(self._schemas.current, watermark_ms, batch_ms)
        count_rows(self._name, self._aside.write(raw, rows, offset_ranges(raw)))

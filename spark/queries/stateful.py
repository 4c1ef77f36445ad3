"""A pipeline that aggregates, joins, or lets each event through once: `Stateful`."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack

import structlog
from botocore.exceptions import BotoCoreError, ClientError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from contracts.definitions.catalog import Catalog
from contracts.servers.ranges import OffsetRange
from contracts.servers.registry import Registry
from spark.derivation.derivation import route, target_schemas
from spark.derivation.stateful.aggregation import Aggregation
from spark.derivation.stateful.event_time import REASON
from spark.derivation.stateful.kinds import stateful
from spark.derivation.stateful.stateful_rows import Read
from spark.pipeline import Pipeline
from spark.records.decode import UnknownId, unknown_id
from spark.records.decoding_log import DecodingLog
from spark.records.topic_schemas import TopicSchemas
from spark.runtime.errors import QueryFailed, StopRequested
from spark.runtime.internals.dropped import has_dropped
from spark.runtime.internals.plans import settled
from spark.runtime.internals.scans import scanned
from spark.runtime.lifecycle import Lifecycle
from spark.runtime.settings import SparkSettings
from spark.sinks.kafka.counts import count_rows
from spark.sinks.kafka.exactly_once import ExactlyOnceSink
from spark.sinks.stateful.sink import StatefulSink
from spark.sinks.stateful.state_note import Begins
from spark.sources.backlog import Backlog
from spark.sources.checkpoint_offsets import CheckpointOffsets, checkpoint_folder
from spark.sources.kafka import read_ranges, read_topic, starting_offsets
from spark.sources.offsets import offset_ranges
from spark.sources.source_topic import SourceTopic, topic_id

_STATE = {
    "spark.sql.streaming.stateStore.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    # A batch writes what it has changed, and not the whole state.
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # Or records would be merged before the late ones are left out, and `aside` would find others.
    "spark.sql.streaming.sessionWindow.merge.sessions.in.local.partition": "false",
    # By default each partition's state takes what memory it likes. An index of a state of millions of keys has blocks of 2.5 MiB, and RocksDB cuts its cache into 64
    # pieces: in one of 128 MiB none finds room, and each look-up reads one again.
    "spark.sql.streaming.stateStore.rocksdb.boundedMemoryUsage": "true",
    "spark.sql.streaming.stateStore.rocksdb.maxMemoryUsageMB": "512",
    "spark.sql.streaming.stateStore.rocksdb.highPriorityPoolRatio": "0.3",
}
_PAUSE_SECONDS = 1.0

_log = structlog.get_logger(__name__)


class _Source:
    """A topic that the query reads."""

    def __init__(
        self,
        pipeline: Pipeline,
        name: str,
        settings: SparkSettings,
        catalog: Catalog,
        registry: Registry,
        lifecycle: Lifecycle,
    ) -> None:
        """`name` is that in the contracts."""
        contract, live = catalog.topic(name), settings.live
        self.name, self.topic = name, contract.name
        self.schemas = TopicSchemas(registry, contract, catalog.schema(name))
        self.decoded_by = self.schemas.current
        of_source = route(pipeline, catalog, name)
        self.aside = ExactlyOnceSink(settings.kafka, of_source, live, lifecycle.epoch, lifecycle.notice_seconds)
        self.read = SourceTopic(settings.kafka, contract.name)


class Stateful:
    """Raw records → groups, pairs, distinct events or places → the target, batch by batch; and beside them the dead letters and the late records, in the same batch.

    Spark's checkpoint has the state, and is the truth of it. A batch that runs again must give the same rows, so what it is made by is kept
    with the state: the number of state partitions, the schemas by which its records are decoded, and how it groups, joins, or tells events apart.
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
        target = catalog.topic(pipeline.target)
        self._session = spark.newSession()
        for name, value in _STATE.items():
            self._session.conf.set(name, value)
        self._is_of_faster = target.derivation is not None and target.derivation.watermark_of == "faster"
        self._session.conf.set("spark.sql.streaming.multipleWatermarkPolicy", "max" if self._is_of_faster else "min")
        # Of the topic that has less to read a batch might have all, and most of the other would be late. In one batch nothing is.
        self._limit = None if self._is_of_faster else settings.live.max_offsets_per_trigger
        # Of distinct events Spark derives from the watermark's delay, too, how long it remembers them.
        is_fixed = target.late_topic is None or target.is_distinct
        limit = None if is_fixed else self._limit
        stopping = lifecycle.stopping
        self._backlog = Backlog(pipeline.name, settings.kafka, limit, stopping, has_memory=target.is_sequence)
        if target.is_distinct:
            # Spark refuses to sort a stream. Here it sorts the rows of each batch, so that not chance decides which one of an event is the first.
            self._session.conf.set("spark.sql.streaming.unsupportedOperationCheck", "false")
        # A pair comes out once, as does a record without one, or a distinct event.
        self._name, self._target = pipeline.name, target.name
        self._output = "complete" if target.is_ranking else pipeline.output if target.is_aggregate else "append"
        self._settings, self._lifecycle = settings, lifecycle
        (self._own,) = target_schemas(pipeline, catalog, registry)
        self._derivation = stateful(self._session, pipeline, catalog, self._own.id)
        self._beside = self._session
        if isinstance(self._derivation, Aggregation) and self._derivation.has_overlapping_windows:
            # What is set aside is planned here. Spark makes code of it that does not compile, says so at each batch, and goes on without.
            self._beside = spark.newSession()
            self._beside.conf.set("spark.sql.codegen.wholeStage", "false")
        self._sources = [_Source(pipeline, name, settings, catalog, registry, lifecycle) for name in pipeline.sources]
        self._sink = StatefulSink(
            settings.kafka,
            route(pipeline, catalog),
            [source.topic for source in self._sources],
            target.partitions,
            self._derivation.plan,
            lifecycle.epoch,
            settings.live.on_state_loss,
            whole=target.is_ranking,
        )
        self._prefix = checkpoint_folder(pipeline.name, target.name)
        self._checkpoints = CheckpointOffsets(settings.s3, self._prefix)
        self._run = ""
        self._replayed: int | None = None
        """A batch that must be decoded as it was when part of it was written."""
        self._query: StreamingQuery | None = None
        self._unknown: UnknownId | None = None
        self._begins_anew = False

    def run(self) -> None:
        """Until asked to stop. A schema that is new starts the query anew.

        Raises what ends it: QueryFailed, StateLost, PositionsDisagree, TakenOver, SinkRefused.
        """
        for sink in self._sinks:
            threading.Thread(target=sink.keep_offsets, args=[self._lifecycle], name="keep-offsets", daemon=True).start()
        while not self._lifecycle.stopping.is_set():
            query = self.start()
            try:
                self._lifecycle.run([query], ends=self._settings.live.ends)
            except QueryFailed:
                if not self._begins_anew:
                    raise
                if (unknown := self._unknown) is not None:
                    schemas = next(each.schemas for each in self._sources if each.schemas.subject == unknown.subject)
                    schemas.look_up(unknown.schema_id, self._lifecycle.stopping)
            else:
                return

    @property
    def _sinks(self) -> Sequence[StatefulSink | ExactlyOnceSink]:
        return (self._sink, *[source.aside for source in self._sources])

    def start(self) -> StreamingQuery:
        """Start the query. Raises StateLost, PositionsDisagree, TopicUnfit, TakenOver, and StopRequested."""
        stopping = self._lifecycle.stopping
        self._query, self._unknown, self._begins_anew = None, None, False
        while not all(source.schemas.renew() for source in self._sources):
            if stopping.wait(_PAUSE_SECONDS):
                raise StopRequested("asked to stop while the registry does not answer")
        self._make_sure_of_the_lease()
        with ExitStack() as writing:
            for sink in self._sinks:
                writing.enter_context(sink.writing)
            # With the checkpoint the sink of the state compares them.
            taken = {source.topic: source.aside.positions(None, stopping) for source in self._sources}
            for source in self._sources:
                source.read.expect(source.aside.topic_id)
            found = {each.topic: each.aside.topic_id for each in self._sources}
            # The brokers forget the state's positions with the target.
            found[self._target] = topic_id(self._settings.kafka, self._target)
            ids = {name: each for name, each in found.items() if each is not None}
            begun = self._sink.begin(self._checkpoints, taken, ids)
            if any(begun.kept.values()):
                # A successor's positions are not another's to move.
                self._make_sure_of_the_lease()
            for source in self._sources:
                source.aside.move_to(begun.kept[source.topic])
        # A checkpoint has its own, but a run that was cut off before its first batch has none.
        self._session.conf.set("spark.sql.shuffle.partitions", str(begun.partitions))
        self._run = begun.run
        others = [run for run in self._checkpoints.runs() if run != begun.run]
        # What a successor began meanwhile is not another's to remove; what it begins from here on is not among the others.
        self._make_sure_of_the_lease()
        self._checkpoints.remove_runs(others)
        self._checkpoints.forget_beginning(begun.run)
        self._decode(begun.coming, is_begun=begun.is_begun)
        more_minutes = self._backlog.look(begun.left, begun.coming)
        reads = [
            Read(self._raw(source, begun.begins, taken[source.topic]), source.decoded_by, more_minutes)
            for source in self._sources
        ]
        self._query = (
            self._derivation.stream(reads)
            .writeStream.queryName(self._name)
            .outputMode(self._output)
            .option("checkpointLocation", f"s3a://{self._settings.s3.bucket}/{self._prefix}/{begun.run}")
            .trigger(**self._settings.live.spark_trigger())
            .foreachBatch(self._lifecycle.until_stopped(self.write))
            .start()
        )
        return self._query

    def _raw(self, source: _Source, begins: Begins, taken: Mapping[int, int]) -> DataFrame:
        return read_topic(
            self._session,
            self._settings.kafka,
            source.topic,
            # Heeded only by a run without a checkpoint.
            starting_offsets=starting_offsets(source.topic, taken) if begins == "group" else "earliest",
            max_offsets_per_trigger=self._limit,
            # What is set aside is read again, with them.
            headers=False,
        )

    def _make_sure_of_the_lease(self) -> None:
        """One that slept, and begins anew, would fence who has taken over. Raises TakenOver, StopRequested."""
        while self._lifecycle.lease is not None:
            try:
                return self._lifecycle.lease.check()
            except (BotoCoreError, ClientError) as error:
                _log.warning("waiting for the object store, which keeps the lease", query=self._name, error=str(error))
                if self._lifecycle.stopping.wait(_PAUSE_SECONDS):
                    raise StopRequested("asked to stop while the object store does not answer") from error

    def _decode(self, coming: int, *, is_begun: bool) -> None:
        self._replayed = None
        for number, source in enumerate(self._sources):
            folder = f"{self._prefix}/{self._run}/decoding{f'.{number}' if number else ''}"
            log = DecodingLog(self._settings.s3, folder, self._lifecycle.epoch)
            before = log.of(coming, source.schemas.current) if is_begun else None
            source.decoded_by = before or source.schemas.current
            if before is None:
                log.keep(coming, source.decoded_by)
            else:
                self._replayed = coming

    def write(self, batch: DataFrame, batch_id: int) -> None:
        """Write what a batch makes, then what it sets aside."""
        self._own.check()
        for source in self._sources:
            source.read.check()
        if batch_id != self._replayed:
            for source in self._sources:
                source.schemas.renew_for_batch(self._lifecycle.stopping)
            if any(source.schemas.current != source.decoded_by for source in self._sources):
                self._begin_anew("a source has a new schema version", None)
        # Before anything is written: what the checkpoint does not tell can't be told after a restart either.
        topics = [source.topic for source in self._sources]
        ranges, watermark_ms = self._checkpoints.planned(self._run, batch_id, topics)
        self._make_sure_of_the_plan(batch_id, ranges)
        if self._backlog.ends_with(batch_id, ranges):
            # It runs again, and then moves the watermark to where the contract says.
            self._begin_anew("the backlog is read", None)
        try:
            partitions = self._sink.write(batch, self._derivation.to_rows, batch_id, ranges)
        except Exception as error:
            found = unknown_id(str(error))
            # A batch that is decoded as it was knows what it knew: to begin anew would go round for ever.
            if found is None or batch_id == self._replayed:
                raise
            self._begin_anew("a record names a schema id not known yet", found)
        has_none = self._settings.live.read_once and self._query is not None and not has_dropped(self._query, REASON)
        for source in self._sources:
            own = [each for each in ranges if each.topic == source.topic and each.start < each.end]
            if own and has_none:
                source.aside.pass_over(own)
            elif own:
                self._set_aside(source, own, watermark_ms)
        for partition in partitions:
            if not self._checkpoints.has_state(self._run, partition, batch_id + 1):
                raise QueryFailed(
                    f"the state of partition {partition} after batch {batch_id} is not in the object store, which told no error: "
                    "start the pipeline again, and the batch runs again"
                )

    def _make_sure_of_the_plan(self, batch_id: int, ranges: Sequence[OffsetRange]) -> None:
        """A predecessor that wakes may write its own over it, which S3A does not refuse. Raises QueryFailed."""
        (query,) = self._session.streams.active
        if _with_records(ranges) != _with_records(OffsetRange(*each) for each in scanned(query)):
            raise QueryFailed(
                f"batch {batch_id} of {self._name} reads other records than its checkpoint tells: a process that was taken over from has woken, "
                "and written its plan over this one's; nothing of the batch is written, start again"
            )

    def _begin_anew(self, why: str, unknown: UnknownId | None) -> None:
        told = {} if unknown is None else {"of": unknown.subject, "id": unknown.schema_id}
        _log.info("the query begins anew", query=self._name, why=why, **told)
        self._unknown, self._begins_anew = unknown, True
        raise StopRequested(why)

    def _set_aside(self, source: _Source, ranges: list[OffsetRange], watermark_ms: int) -> None:
        """The dead letters and late records of a batch, and with them the group's offsets: up to there everything is accounted for."""
        raw = settled(read_ranges(self._beside, self._settings.kafka, ranges, fail_on_data_loss=True))
        rows = self._derivation.aside(source.name, source.decoded_by, watermark_ms)
        count_rows(self._name, source.aside.write(raw, rows, offset_ranges(raw)))


def _with_records(ranges: Iterable[OffsetRange]) -> set[OffsetRange]:
    return {each for each in ranges if each.start < each.end}

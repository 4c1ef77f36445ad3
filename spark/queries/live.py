"""A pipeline in micro-batches: `Live`."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from contracts.definitions.catalog import Catalog
from contracts.servers.registry import Registry
from spark.derivation.derivation import Derivation, target_schemas
from spark.lookups.broadcasts import sides_of
from spark.lookups.dimensions import Dimension, Dimensions
from spark.pipeline import Pipeline
from spark.records.schemas import WriterSchemas
from spark.records.topic_schemas import TopicSchemas
from spark.runtime.lifecycle import Lifecycle
from spark.runtime.settings import SparkSettings
from spark.sinks.kafka.counts import count_batch
from spark.sinks.kafka.sink import Sink, ToRows, Written
from spark.sources.checkpoint_offsets import CheckpointOffsets, checkpoint_folder
from spark.sources.kafka import read_topic
from spark.sources.offsets import offset_ranges
from spark.sources.source_topic import SourceTopic, topic_id


class Live:
    """Raw records → what the pipeline makes of them → `sink`, batch by batch."""

    def __init__(
        self,
        spark: SparkSession,
        pipeline: Pipeline,
        settings: SparkSettings,
        catalog: Catalog,
        registry: Registry,
        sink: Sink,
        lifecycle: Lifecycle,
    ) -> None:
        """Raises NotAProducer if the target's contract does not list the pipeline, PipelineUnfit."""
        source = catalog.topic(pipeline.source)
        self._spark = spark
        self._name = pipeline.name
        self._settings = settings
        self._sink = sink
        self._lifecycle = lifecycle
        self._schemas = TopicSchemas(registry, source, catalog.schema(pipeline.source))
        self._dimensions = Dimensions(spark, settings.s3, [catalog.dimension(name) for name in pipeline.dimensions])
        self._own = target_schemas(pipeline, catalog, registry)
        ids = [each.id for each in self._own]
        self._derivation = Derivation(spark, pipeline, catalog, *ids, encode_once=settings.live.encode_once)
        self._sides = sides_of(pipeline.lookups, self._derivation.sides, keep=settings.live.keep_broadcasts)
        self._made: ToRows | None = None
        self._made_of: tuple[WriterSchemas, Mapping[str, Dimension]] | None = None
        self._source, self._folder = source, checkpoint_folder(pipeline.name)
        self._read = SourceTopic(settings.kafka, source.name)

    def start(self) -> StreamingQuery | None:
        """Start the query when the dimensions are published; None if asked to stop before.

        Raises PositionsDisagree if it can't be told where to go on, StopRequested while that is found out.
        """
        if not self._dimensions.wait(self._lifecycle.stopping):
            return None
        checkpoints = CheckpointOffsets(self._settings.s3, self._folder)
        # Before the positions: where it is made anew meanwhile, the first batch finds that.
        of = topic_id(self._settings.kafka, self._source.name)
        self._read.expect(of)
        # One that was frozen until now would fence its successor.
        self._lifecycle.check_lease()
        starting_offsets = self._sink.starting_offsets(checkpoints, self._lifecycle.stopping)
        self._lifecycle.check_lease()
        if self._sink.keeps_checkpoint:
            checkpoints.remove_behind(self._source.name, of)
        else:
            checkpoints.remove()
        # Of this process alone: one that was frozen, and wakes, would write its next batch into that of its successor.
        run = f"{self._lifecycle.epoch}.{uuid.uuid4().hex[:8]}"
        checkpoint = f"{self._folder}/{run}"
        if of is not None:
            checkpoints.keep_topic(run, self._source.name, of)
        raw = read_topic(
            self._spark,
            self._settings.kafka,
            self._source.name,
            starting_offsets=starting_offsets,
            max_offsets_per_trigger=self._settings.live.max_offsets_per_trigger,
        )
        return (
            raw.writeStream.queryName(self._name)
            .option("checkpointLocation", f"s3a://{self._settings.s3.bucket}/{checkpoint}")
            .trigger(**self._settings.live.spark_trigger())
            .foreachBatch(self._lifecycle.until_stopped(self.write))
            .start()
        )

    def write(self, batch: DataFrame, batch_id: int) -> None:
        """Write what comes of one batch of raw records into the sink, the bad ones as dead letters. One Spark job."""

        def write(schemas: WriterSchemas) -> Written:
            return self._sink.write(batch, self._to_rows(schemas, self._dimensions.newest()), offset_ranges(batch))

        for each in self._own:
            each.check()
        self._read.check()
        count_batch(self._name, self._schemas.covering(batch, write, self._lifecycle.stopping))

    def _to_rows(self, schemas: WriterSchemas, dimensions: Mapping[str, Dimension]) -> ToRows:
        """The same function as before while there is neither a schema nor a dimension version that is new."""
        if self._made is None or self._made_of != (schemas, dimensions):
            sides = self._sides(dimensions)
            self._made_of = (schemas, dimensions)
            self._made = self._derivation.to_rows(schemas, sides, dimensions)
        return self._made

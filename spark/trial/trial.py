"""What a pipeline would make of the raw records that are there, beside what is there of them already: `Trial`."""

from __future__ import annotations

import functools
import json
import operator
from collections.abc import Callable, Sequence

from confluent_kafka import Consumer, KafkaException, TopicPartition
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro

from contracts.checks.retained import WHATS, Outcome, Retained
from contracts.definitions.catalog import Catalog
from contracts.definitions.topic import TopicContract
from contracts.errors import UnknownSubject
from contracts.records.coordinates import pattern
from contracts.records.dead_letter_headers import ERRORS
from contracts.records.wire import FRAME_BYTES
from contracts.servers.brokers import partitions_of, retried, watermarks
from contracts.servers.ranges import OffsetRange
from contracts.servers.registry import Registry
from spark.derivation.derivation import Derivation, route
from spark.lookups.dimensions import Dimensions
from spark.lookups.enriched_value import STAMPED
from spark.pipeline import Pipeline
from spark.records.decode import decode
from spark.records.headers import coordinate, header
from spark.records.schemas import WriterSchemas
from spark.runtime.settings import SparkSettings
from spark.sinks.kafka.sink import BRANCH
from spark.sinks.kafka.transaction import committed_offsets, position_reader
from spark.sources.kafka import read_ranges
from spark.trial.comparison import compared

_NO_ID = 0
"""The new schema is not registered for a trial, and nobody else sees these values."""

_TIMEOUT_SECONDS = 30.0
_CLOCKS_DIFFER_MS = 60_000
"""By so much a record that is made of another may bear an earlier time."""

_RAW = """key binary, value binary, topic string, partition int, offset long, timestamp timestamp,
headers array<struct<key: string, value: binary>>"""


class Trial:
    """Reads topics, schemas and dimensions, and the positions of the pipeline's group; joins no group, and registers no schema."""

    def __init__(
        self,
        spark: SparkSession,
        pipeline: Pipeline,
        settings: SparkSettings,
        catalog: Catalog,
        registry: Registry,
        branch: str | None = None,
    ) -> None:
        """Of the topic that it writes, or of a branch of the one by this name. Raises PipelineUnfit, and ContractError."""
        self._spark, self._pipeline, self._kafka, self._registry = spark, pipeline, settings.kafka, registry
        self._branch, self._name = branch, pipeline.target if branch is None else pipeline.branches[branch]
        self._source, self._target = catalog.topic(pipeline.source), catalog.topic(self._name)
        self._schemas = {each: catalog.schema(each) for each in (pipeline.source, self._name)}
        self._route = route(pipeline, catalog)
        self._derivation = Derivation(spark, pipeline, catalog, *[_NO_ID] * len(pipeline.targets))
        self._dimensions = Dimensions(spark, settings.s3, [catalog.dimension(name) for name in pipeline.dimensions])

    def run(self, most: int, say: Callable[[str], None] = lambda _: None) -> Retained:
        """Of the newest `most` records of each partition of the source, by the newest dimension versions. `say` is told how many.

        Raises DimensionUnreadable, RegistryError and KafkaException.
        """
        reader = position_reader(self._kafka.client_config(), self._route)
        try:
            whole = _ranges(reader, self._source.name)
            if not whole:
                problem = f"there is no topic {self._source.name}: headrace topics create makes it"
                return Retained(topic=self._target.name, pipeline=self._pipeline.name, problem=problem)
            window = [
                OffsetRange(each.topic, each.partition, max(each.start, each.end - most), each.end) for each in whole
            ]
            raw = self._read(window)
            seen = raw.agg(F.count("*").alias("records"), F.min(F.unix_millis("timestamp")).alias("since"))
            (first,) = seen.toArrow().to_pylist()
            say(f"{self._pipeline.name}: making {first['records']:,} records of {self._source.name} anew")
            older = sum(new.start - old.start for new, old in zip(window, whole, strict=True))
            if first["since"] is None:
                return Retained(topic=self._target.name, pipeline=self._pipeline.name, older=older)
            since_ms = first["since"] - _CLOCKS_DIFFER_MS
            handled = committed_offsets(reader, self._source.name, [each.partition for each in window])
            was = self._was(_ranges(reader, self._target.name, since_ms), window)
            letters = self._letters(_ranges(reader, self._route.dead_letters, since_ms))
        finally:
            reader.close()
        names = [field["name"] for field in json.loads(self._schemas[self._name])["fields"]]
        outcomes = compared(self._made(raw), was, letters, [each for each in names if each not in STAMPED], handled)
        counted = sum(each.count for each in outcomes if each.what != "field")
        # Of records in parts nobody knows how many there are.
        if (left_out := first["records"] - counted) > 0 and not self._target.has_parts:
            outcomes.append(Outcome(what="left out", count=left_out))
        ordered = sorted(outcomes, key=lambda each: (WHATS.index(each.what), each.name))
        return Retained(topic=self._target.name, pipeline=self._pipeline.name, older=older, outcomes=tuple(ordered))

    def _made(self, raw: DataFrame) -> DataFrame:
        """What the pipeline makes of raw records: record, coordinate, partition, offset, and `reason` and `error`, or `now`."""
        dimensions = self._dimensions.newest()
        to_rows = self._derivation.to_rows(
            self._writers(self._source, self._pipeline.source), self._derivation.sides(dimensions), dimensions
        )
        body = F.substring("value", FRAME_BYTES + 1, self._target.most_record_bytes)
        event = from_avro(F.when(F.col("reason").isNull(), body), self._schemas[self._name])
        rows = to_rows(raw)
        if self._branch is not None:
            # The dead letters are those of all branches.
            rows = rows.where(F.col("reason").isNotNull() | (F.col(BRANCH) == self._branch))
        at = F.lit(self._source.name), F.col("partition"), F.col("offset")
        # Of a bad record part is null, which concat_ws leaves out.
        part = F.col("part") if "part" in rows.columns else None
        return rows.select(
            coordinate(*at).alias("record"),
            coordinate(*at, part).alias("coordinate"),
            "partition",
            "offset",
            "reason",
            "error",
            event.alias("now"),
            F.lit(True).alias("is_made"),
        )

    def _was(self, ranges: Sequence[OffsetRange], window: Sequence[OffsetRange]) -> DataFrame:
        """By coordinate the newest revision of what is there of raw records in the window, as the new schema has it: `was`."""
        raw = self._read(ranges)
        place = header(F.col("headers"), "ce_id").cast("string")
        # Java names groups otherwise.
        form = pattern(self._source.name, parts=self._target.has_parts).replace("(?P<", "(?<")
        raw = raw.where(place.rlike(form) & _in(window, place))
        decoded = decode(raw, self._writers(self._target, self._name))
        has_revisions = "revision" in decoded.select("event.*").columns
        revision = F.coalesce("event.revision", F.lit(0)) if has_revisions else F.lit(0)
        place = header(F.col("record.headers"), "ce_id").cast("string").alias("coordinate")
        newest = F.max_by("event", F.struct(revision, "record.offset"))
        return decoded.groupBy(place).agg(newest.alias("was"), F.lit(True).alias("is_there"))

    def _letters(self, ranges: Sequence[OffsetRange]) -> DataFrame:
        """The records that are the pipeline's dead letters."""
        headers = F.col("headers")
        own = header(headers, f"{ERRORS}connector.name").cast("string") == self._pipeline.name
        place = header(headers, "ce_id").cast("string").alias("record")
        return self._read(ranges).where(own).select(place, F.lit(True).alias("is_letter")).distinct()

    def _writers(self, topic: TopicContract, name: str) -> WriterSchemas:
        """`name` is that of the contract."""
        try:
            writers = {each.id: each.schema for each in self._registry.versions(topic.subject)}
        except UnknownSubject:
            writers = {}
        return WriterSchemas(topic.subject, self._schemas[name], writers, None, topic.most_record_bytes)

    def _read(self, ranges: Sequence[OffsetRange]) -> DataFrame:
        return read_ranges(self._spark, self._kafka, ranges) if ranges else self._spark.createDataFrame([], _RAW)


def _ranges(reader: Consumer, topic: str, since_ms: int | None = None) -> list[OffsetRange]:
    """What a topic's partitions hold, or what they hold since a time; none of a topic that is not there. Raises KafkaException."""
    partitions = partitions_of(reader, topic, _TIMEOUT_SECONDS)
    held = [OffsetRange(topic, each, *watermarks(reader, topic, each, _TIMEOUT_SECONDS)) for each in partitions]
    if since_ms is None or not held:
        return held
    asked = [TopicPartition(topic, each, max(since_ms, 0)) for each in partitions]
    found = retried(lambda: reader.offsets_for_times(asked, timeout=_TIMEOUT_SECONDS), _TIMEOUT_SECONDS)
    for each in found:
        if each.error is not None:
            raise KafkaException(each.error)
    starts = {each.partition: each.offset for each in found if each.offset >= 0}
    return [
        OffsetRange(topic, each.partition, min(starts.get(each.partition, each.end), each.end), each.end)
        for each in held
    ]


def _in(window: Sequence[OffsetRange], place: Column) -> Column:
    """Whether a coordinate of the topic is one of a record there."""
    partition, offset = (F.get(F.split(place, "/"), F.lit(part)) for part in (1, 2))
    within = [
        (partition == str(each.partition)) & offset.try_cast("bigint").between(each.start, each.end - 1)
        for each in window
    ]
    return functools.reduce(operator.or_, within, F.lit(False))

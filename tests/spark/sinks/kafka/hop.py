"""The exactly-once sink between two topics, without the enrichment; and as a process, `python -m tests.spark.sinks.kafka.hop`.

The process sends a range whose first try fails at half of it, with a local master that tries a task twice.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Self

from confluent_kafka import Consumer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from contracts.servers.brokers import watermarks
from contracts.servers.ranges import OffsetRange
from contracts.servers.registry import Registry
from contracts.settings import read_settings
from spark.records.decode import events
from spark.records.schemas import WriterSchemas
from spark.runtime.session import start_session
from spark.runtime.settings import SparkSettings
from spark.sinks.kafka.exactly_once import ExactlyOnceSink
from spark.sinks.kafka.sink import Route, Written, outgoing
from spark.sinks.kafka.transaction import committed_offsets, position_reader
from spark.sources.kafka import kafka_options
from tests import sample
from tests.spark.examples import DISPATCHED, SCHEMA, Topics

PARTITION = 0

Spoil = Callable[[DataFrame], DataFrame]
"""What a test does to the raw rows before they are decoded."""


def unspoilt(raw: DataFrame) -> DataFrame:
    return raw


@dataclass
class Hop:
    """Values go through as they are."""

    spark: SparkSession
    settings: SparkSettings
    topics: Topics
    route: Route
    parts: int = 1

    @classmethod
    def of(cls, spark: SparkSession, settings: SparkSettings, topics: Topics) -> Self:
        """Of a query of its own."""
        dispatched = topics.dispatched
        query = f"q-{uuid.uuid4().hex[:8]}"
        return cls(
            spark, settings, topics, Route(query, dispatched.name, topics.enriched.name, dispatched.dead_letter_topic)
        )

    def sink(self, **live: object) -> ExactlyOnceSink:
        return ExactlyOnceSink(self.settings.kafka, self.route, self.settings.live.model_copy(update=live))

    def write(self, start: int, end: int, **live: object) -> Written:
        """A range of the one partition."""
        return self.write_all({PARTITION: (start, end)}, unspoilt, **live)

    def write_all(self, ends: Mapping[int, tuple[int, int]], spoil: Spoil = lambda raw: raw, **live: object) -> Written:
        """A range of each partition, as one batch."""
        found = [OffsetRange(self.route.source, partition, *each) for partition, each in ends.items()]
        return self.sink(**live).write(self.raw(ends), lambda raw: self.to_rows(spoil(raw)), found)

    def raw(self, ends: Mapping[int, tuple[int, int]]) -> DataFrame:
        source = self.route.source
        starts = {str(partition): start for partition, (start, _) in ends.items()}
        raw = self.spark.read.format("kafka").options(
            **kafka_options(self.settings.kafka),
            assign=json.dumps({source: list(ends)}),
            startingOffsets=json.dumps({source: starts}),
            endingOffsets=json.dumps({source: {str(partition): end for partition, (_, end) in ends.items()}}),
            includeHeaders="true",
        )
        return raw.load()

    def to_rows(self, raw: DataFrame) -> DataFrame:
        schemas = WriterSchemas(self.topics.dispatched.subject, SCHEMA, {self.topics.schema_ids[DISPATCHED]: SCHEMA})
        made = events(raw, schemas)
        if self.parts > 1:
            is_good = F.col("__reason").isNull()
            numbers = F.when(is_good, F.array(*map(F.lit, range(self.parts))))
            made = made.select("*", F.explode_outer(numbers).alias("__part")).withColumn("__parts", F.lit(self.parts))
        return outgoing(made, F.col("__record.value"), F.lit("couriers,vans"), parts=self.parts > 1)

    def written(self) -> list[int]:
        """The raw offsets in the target topic, in order."""
        return sorted(self.written_of_all()[PARTITION].elements())

    def written_of_all(self) -> Mapping[int, Counter[int]]:
        """How often each raw offset is in the target topic, by raw partition."""
        found = defaultdict[int, Counter[int]](Counter)
        for message in self.topics.read(self.route.target):
            _, partition, offset = str(dict(message.headers() or [])["ce_id"]).strip("b'").split("/")
            found[int(partition)][int(offset)] += 1
        return found

    def transaction_ends(self) -> list[int]:
        """How many records lie before each end of a transaction in the target topic: each is an offset without a record."""
        ends = []
        for partition in range(2):
            offsets = sorted(
                message.offset() or 0
                for message in self.topics.read(self.route.target)
                if message.partition() == partition
            )
            holes = set(range(offsets[-1] + 2)) - set(offsets) if offsets else set[int]()
            ends += [sum(offset < hole for offset in offsets) for hole in sorted(holes)]
        return ends

    def position(self, partition: int = PARTITION) -> int | None:
        """The group's."""
        reader = position_reader(self.settings.kafka.client_config(), self.route)
        try:
            return committed_offsets(reader, self.route.source, [partition])[partition]
        finally:
            reader.close()

    def seen(self) -> int:
        """How many records the target topic has, those of open transactions too."""
        anything = {"group.id": "tests", "isolation.level": "read_uncommitted"}
        reader = Consumer(self.settings.kafka.client_config() | anything)
        try:
            return sum(watermarks(reader, self.route.target, partition, 30)[1] for partition in (0, 1))
        finally:
            reader.close()


def main() -> None:
    tag, query, end = sys.argv[1:]
    settings, catalog = read_settings(SparkSettings), sample.catalog()
    spark = start_session(settings, "hop")
    with Registry(settings.registry) as registry:
        hop = Hop.of(spark, settings, Topics(settings, catalog, registry, tag))
    hop.route = dataclasses.replace(hop.route, query=query)
    # The property's value of before: the text "null" on the first try.
    tried = F.expr("reflect('java.lang.System', 'setProperty', 'headrace.tried', 'yes')")
    # Its worker has sent all that came when it fails, and could commit before the second try fences it.
    waited = F.expr("reflect('java.lang.Thread', 'sleep', 1000L)")
    half = (F.col("offset") == int(end) // 2) & (tried == "null") & (waited == "null")

    def spoil(raw: DataFrame) -> DataFrame:
        return raw.withColumn("value", F.when(half, F.raise_error(F.lit("spoilt"))).otherwise(F.col("value")))

    hop.write_all({PARTITION: (0, int(end))}, spoil)
    spark.stop()


if __name__ == "__main__":
    main()

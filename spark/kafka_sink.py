"""The sink of `live`: at-least-once, by Spark's own Kafka writer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pyspark.sql import DataFrame

from contracts.settings import KafkaSettings
from spark.kafka import kafka_options
from spark.offsets import OffsetRange

_PRODUCER = {
    "kafka.acks": "all",
    "kafka.enable.idempotence": "true",
    "kafka.compression.type": "lz4",
    "kafka.linger.ms": "5",
    "kafka.batch.size": str(256 << 10),
}


class Sink(Protocol):
    """Where the rows of a batch go: everything of it, or an exception."""

    def write(self, rows: DataFrame, ranges: Sequence[OffsetRange], batch_id: int) -> None:
        """Write (topic, key, value, headers); `ranges` are the raw offsets that the rows come from."""


class KafkaSink:
    """A batch that is run again after a failure is written again, with the same coordinates."""

    def __init__(self, kafka: KafkaSettings) -> None:
        self._options = kafka_options(kafka) | _PRODUCER

    def write(self, rows: DataFrame, ranges: Sequence[OffsetRange], batch_id: int) -> None:
        """Write the rows, each to the topic that it names; returns when the brokers have them all."""
        rows.write.format("kafka").mode("append").options(**self._options, includeHeaders="true").save()

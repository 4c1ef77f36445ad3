"""The options of Spark's Kafka source and sink."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from contracts.records.limits import LARGEST_BATCH_BYTES
from contracts.servers.ranges import OffsetRange
from contracts.settings import KafkaSettings

_HEADERS = "array<struct<key: string, value: binary>>"
EARLIEST = -2
"""A position: the first record that there is, as Spark's source has it."""

PRODUCER = {
    "kafka.acks": "all",
    "kafka.enable.idempotence": "true",
    "kafka.compression.type": "lz4",
    "kafka.linger.ms": "5",
    "kafka.max.request.size": str(LARGEST_BATCH_BYTES),
    "kafka.batch.size": str(256 << 10),
}


def kafka_options(kafka: KafkaSettings) -> dict[str, str]:
    """How to reach the brokers, as Java client properties with Spark's prefix; secrets in clear."""
    options = {"bootstrap.servers": kafka.bootstrap_servers, "security.protocol": kafka.security_protocol}
    if kafka.sasl_mechanism is not None:
        module = "plain.PlainLoginModule" if kafka.sasl_mechanism == "PLAIN" else "scram.ScramLoginModule"
        password = kafka.sasl_password.get_secret_value() if kafka.sasl_password is not None else ""
        options["sasl.mechanism"] = kafka.sasl_mechanism
        options["sasl.jaas.config"] = (
            f"org.apache.kafka.common.security.{module} required "
            f"username={_quoted(kafka.sasl_username or '')} password={_quoted(password)};"
        )
    if kafka.ssl_ca_file is not None:
        options |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(kafka.ssl_ca_file)}
    return {f"kafka.{option}": value for option, value in options.items()}


def read_topic(
    spark: SparkSession,
    kafka: KafkaSettings,
    topic: str,
    *,
    starting_offsets: str,
    max_offsets_per_trigger: int | None,
    options: Mapping[str, str] | None = None,
    headers: bool = True,
) -> DataFrame:
    """The topic's committed records as a stream; lost records stop the query. Without `headers`, a third of what reading costs, each has null."""
    stream = spark.readStream.format("kafka").options(**kafka_options(kafka), **(options or {}))
    if max_offsets_per_trigger is not None:
        stream = stream.option("maxOffsetsPerTrigger", str(max_offsets_per_trigger))
    found = stream.options(
        **{
            "subscribe": topic,
            "startingOffsets": starting_offsets,
            "includeHeaders": str(headers).lower(),
            "failOnDataLoss": "true",
            "kafka.isolation.level": "read_committed",
            # The default of 500 makes Spark ask the client four times as often; 10,000 at once outlive the young heap.
            "kafka.max.poll.records": "2000",
        }
    ).load()
    return found if headers else found.withColumn("headers", F.lit(None).cast(_HEADERS))


def starting_offsets(topic: str, positions: Mapping[int, int]) -> str:
    """Positions by partition as `read_topic` takes them; EARLIEST is one."""
    return json.dumps({topic: positions})


def read_ranges(
    spark: SparkSession, kafka: KafkaSettings, ranges: Sequence[OffsetRange], *, fail_on_data_loss: bool = False
) -> DataFrame:
    """The committed records of one topic's ranges, headers included, for one job; what is deleted meanwhile is left out, or fails it."""
    (topic,) = {each.topic for each in ranges}
    reading = spark.read.format("kafka").options(**kafka_options(kafka))
    return reading.options(
        **{
            "assign": json.dumps({topic: [each.partition for each in ranges]}),
            "startingOffsets": json.dumps({topic: {each.partition: each.start for each in ranges}}),
            "endingOffsets": json.dumps({topic: {each.partition: each.end for each in ranges}}),
            "includeHeaders": "true",
            "failOnDataLoss": str(fail_on_data_loss).lower(),
            "kafka.isolation.level": "read_committed",
        }
    ).load()


def write_records(kafka: KafkaSettings, records: DataFrame) -> None:
    """Write (topic, key, value, headers) by Spark's own writer; returns when the brokers have them all.

    At-least-once: a job that fails and runs again writes again.
    """
    options = kafka_options(kafka) | PRODUCER
    records.write.format("kafka").mode("append").options(**options, includeHeaders="true").save()


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

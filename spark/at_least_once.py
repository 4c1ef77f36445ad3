"""The at-least-once sink: Spark's own Kafka writer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from contracts.brokers import partitions_of
from contracts.settings import KafkaSettings
from spark.dead_letters import dead_letter_headers
from spark.enrich import LOOKUPS
from spark.headers import coordinate, header_array, header_if_any
from spark.kafka import write_records
from spark.offsets import OffsetRange
from spark.resume import CheckpointOffsets, find_positions, resume, starting_offsets
from spark.settings import LiveSettings
from spark.sink import PASSED_ON, Route, ToRows, Written
from spark.tail import read_tail, written_without_offset
from spark.transaction import committed_positions, fence, position_reader

_TIMEOUT_SECONDS = 30.0


class AtLeastOnceSink:
    """A batch that is run again after a failure is written again, with the same coordinates."""

    keeps_checkpoint = True

    def __init__(self, kafka: KafkaSettings, route: Route, live: LiveSettings) -> None:
        self._kafka = kafka
        self._route = route
        self._live = live

    def starting_offsets(self, checkpoint: CheckpointOffsets) -> str:
        """Where the mode before it was, by the group: its own position is the checkpoint. Fences whoever writes exactly once.

        Raises PositionsDisagree if records that nobody has taken in are gone from the topic.
        """
        topic = self._route.source
        reader = position_reader(self._kafka.client_config(), self._route)
        try:
            partitions = partitions_of(reader, topic, _TIMEOUT_SECONDS)
            fence(self._kafka.client_config(), self._route, partitions)
            taken = read_tail(self._kafka, self._route, committed_positions(reader, topic, partitions))
            forgotten = written_without_offset(self._kafka, self._route, partitions, taken)
            found = find_positions(reader, topic, partitions, taken, {}, forgotten)
        finally:
            reader.close()
        return starting_offsets(topic, resume(found, topic, self._live.resume_from, self._live.on_data_loss))

    def write(self, batch: DataFrame, to_rows: ToRows, ranges: Sequence[OffsetRange]) -> Written:
        """Write the rows; returns when the brokers have them all."""
        seen = Observation()
        write_records(self._kafka, kafka_records(observed(to_rows(batch), seen), self._route))
        return written(seen.get)


def kafka_records(rows: DataFrame, route: Route) -> DataFrame:
    """Rows of `spark.sink.outgoing` as columns of Spark's Kafka writer: topic, key, value and headers."""
    good = F.col("reason").isNull()
    source = F.lit(route.source)
    # Those that are the same for every record stand alone: one literal, which costs nothing per record.
    constant = header_array({name: F.lit(text) for name, text in route.constant_headers.items()})
    derived = F.concat(
        header_array({"ce_id": coordinate(source, F.col("partition"), F.col("offset"))}),
        constant,
        *[header_if_any(name, F.col(name)) for name in PASSED_ON],
    )
    timestamp = F.timestamp_millis("timestamp_ms").alias("timestamp")
    record = F.struct(source.alias("topic"), "partition", "offset", timestamp, "headers", "stump")
    bad = dead_letter_headers(route.query, record, F.col("reason"), F.col("error"))
    topic = F.when(good, F.lit(route.target)).otherwise(F.lit(route.dead_letters))
    return rows.select(topic.alias("topic"), "key", "value", F.when(good, derived).otherwise(bad).alias("headers"))


def observed(rows: DataFrame, seen: Observation | str) -> DataFrame:
    """Rows of `spark.sink.outgoing`, counted into `seen` while they pass, at no further job; `written` reads it."""
    return rows.observe(
        seen,
        F.count("reason").alias("dead_letters"),
        F.min("timestamp_ms").alias("oldest_ms"),
        F.avg("timestamp_ms").alias("mean_ms"),
        *[
            F.count_if(F.find_in_set(F.lit(lookup.name), F.col("unmatched")) > 0).alias(f"unmatched.{lookup.name}")
            for lookup in LOOKUPS
        ],
    )


def written(seen: Mapping[str, Any]) -> Written:
    """What `observed` has counted."""
    unmatched = {lookup.name: seen[f"unmatched.{lookup.name}"] for lookup in LOOKUPS}
    return Written(seen["dead_letters"], seen["oldest_ms"], seen["mean_ms"], unmatched)

"""The at-least-once sink: Spark's own Kafka writer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from contracts.settings import KafkaSettings
from spark.dead_letters import dead_letter_headers
from spark.enrich import LOOKUPS
from spark.headers import coordinate, header_array, header_if_any
from spark.kafka import write_records
from spark.offsets import OffsetRange
from spark.resume import CheckpointOffsets
from spark.sink import PASSED_ON, Route, ToRows, Written


class AtLeastOnceSink:
    """A batch that is run again after a failure is written again, with the same coordinates."""

    keeps_checkpoint = True

    def __init__(self, kafka: KafkaSettings, route: Route) -> None:
        self._kafka = kafka
        self._route = route

    def starting_offsets(self, checkpoint: CheckpointOffsets) -> str:
        """The first records: it has no position of its own."""
        return "earliest"

    def write(self, batch: DataFrame, to_rows: ToRows, ranges: Sequence[OffsetRange]) -> Written:
        """Write the rows; returns when the brokers have them all."""
        seen = Observation()
        write_records(self._kafka, self.records(observed(to_rows(batch), seen)))
        return written(seen.get)

    def records(self, rows: DataFrame) -> DataFrame:
        """Rows of `spark.sink.outgoing` as columns of Spark's Kafka writer: topic, key, value and headers."""
        good = F.col("reason").isNull()
        source = F.lit(self._route.source)
        # Those that are the same for every record stand alone: one literal, which costs nothing per record.
        constant = header_array({name: F.lit(text) for name, text in self._route.constant_headers.items()})
        derived = F.concat(
            header_array({"ce_id": coordinate(source, F.col("partition"), F.col("offset"))}),
            constant,
            *[header_if_any(name, F.col(name)) for name in PASSED_ON],
        )
        timestamp = F.timestamp_millis("timestamp_ms").alias("timestamp")
        record = F.struct(source.alias("topic"), "partition", "offset", timestamp, "headers")
        bad = dead_letter_headers(self._route.query, record, F.col("reason"), F.col("error"))
        topic = F.when(good, F.lit(self._route.target)).otherwise(F.lit(self._route.dead_letters))
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

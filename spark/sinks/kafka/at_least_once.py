"""The at-least-once sink: Spark's own Kafka writer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Any

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from contracts.definitions.lookup import Lookup
from contracts.records.coordinates import PARTS
from contracts.servers.brokers import partitions_of, watermarks
from contracts.servers.ranges import OffsetRange
from contracts.settings import KafkaSettings
from spark.records.cases import first_of
from spark.records.dead_letters import dead_letter_headers
from spark.records.headers import coordinate, header_array, header_if_any
from spark.runtime.settings import LiveSettings
from spark.sinks.kafka.resume import Evidence, resume
from spark.sinks.kafka.sink import BRANCH, PASSED_ON, Route, ToRows, Written
from spark.sinks.kafka.succession import leave_epoch, wait_for_predecessor
from spark.sinks.kafka.tail import read_known
from spark.sinks.kafka.transaction import fenced, position_reader
from spark.sources.checkpoint_offsets import CheckpointOffsets
from spark.sources.kafka import starting_offsets, write_records
from spark.sources.source_topic import topic_id

_TIMEOUT_SECONDS = 30.0


class AtLeastOnceSink:
    """A batch that is run again after a failure is written again, with the same coordinates."""

    keeps_checkpoint = True

    def __init__(
        self,
        kafka: KafkaSettings,
        route: Route,
        live: LiveSettings,
        epoch: int = 0,
        notice_seconds: float = 0.0,
        lookups: Sequence[Lookup] = (),
    ) -> None:
        """`epoch` is that of the lease, 0 without one, `notice_seconds` how long its last holder may go on in real-time mode."""
        self._epoch = epoch
        self._notice_seconds = notice_seconds
        self._kafka = kafka
        self._route = route
        self._live = live
        self._lookups = lookups

    def take_over(self, stopping: threading.Event) -> None:
        """Fence whoever writes exactly once, and leave the epoch beside what offsets the group has, for one that writes otherwise to find.

        Raises KafkaException, and StopRequested.
        """
        kafka = self._kafka.client_config()
        with closing(position_reader(kafka, self._route)) as reader:
            partitions = partitions_of(reader, self._route.source, _TIMEOUT_SECONDS)
            with fenced(kafka, self._route, partitions) as producers:
                left = leave_epoch(producers, reader, self._route, partitions, self._epoch)
        wait_for_predecessor(left, self._notice_seconds, stopping)

    def starting_offsets(self, checkpoint: CheckpointOffsets, stopping: threading.Event) -> str:
        """Behind the last batch that a checkpoint knows to be written, which is its position; without one, where the mode before it was, by the
        group.

        Raises PositionsDisagree if records that nobody has taken in are gone from the topic, or it was made anew, and StopRequested.
        """
        topic = self._route.source
        reader = position_reader(self._kafka.client_config(), self._route)
        try:
            partitions = partitions_of(reader, topic, _TIMEOUT_SECONDS)
            there = topic_id(self._kafka, topic)
            written, other = checkpoint.committed_of(topic, there)
            if written or other is not None:
                made_anew = None if other is None else (other, there)
                evidence = {
                    p: Evidence(
                        written.get(p), None, *watermarks(reader, topic, p, _TIMEOUT_SECONDS), made_anew=made_anew
                    )
                    for p in partitions
                }
            else:
                known = read_known(self._kafka, self._route, reader, partitions, self._live.on_data_loss, stopping)
                evidence = {p: known.evidence(reader, topic, p, None) for p in partitions}
        finally:
            reader.close()
        return starting_offsets(topic, resume(evidence, topic, self._live.resume_from, self._live.on_data_loss))

    def write(self, batch: DataFrame, to_rows: ToRows, ranges: Sequence[OffsetRange]) -> Written:
        """Write the rows; returns when the brokers have them all."""
        seen = Observation()
        write_records(self._kafka, kafka_records(observed(to_rows(batch), seen, self._lookups), self._route))
        return written(seen.get, self._lookups)


def kafka_records(rows: DataFrame, route: Route) -> DataFrame:
    """Rows of `spark.sinks.kafka.sink.outgoing` as columns of Spark's Kafka writer: topic, key, value and headers."""
    good = F.col("reason").isNull()
    source = F.lit(route.source)
    # Those that are the same for every record of a topic stand alone: one literal, which costs nothing per record.
    constant = _by_branch(
        route,
        lambda target: header_array({name: F.lit(text) for name, text in route.constant_headers(target).items()}),
    )
    part = F.col("part") if route.parts else None
    derived = F.concat(
        header_array({"ce_id": coordinate(source, F.col("partition"), F.col("offset"), part)}),
        constant,
        *[header_if_any(name, F.col(name)) for name in PASSED_ON],
        *([header_array({PARTS: F.col("parts")})] if route.parts else []),
    )
    timestamp = F.timestamp_millis("timestamp_ms").alias("timestamp")
    record = F.struct(source.alias("topic"), "partition", "offset", timestamp, "headers", "stump")
    bad = dead_letter_headers(route.query, record, F.col("reason"), F.col("error"))
    topic = F.when(good, _by_branch(route, F.lit)).otherwise(F.lit(route.dead_letters))
    return rows.select(topic.alias("topic"), "key", "value", F.when(good, derived).otherwise(bad).alias("headers"))


def _by_branch(route: Route, made: Callable[[str], Column]) -> Column:
    """What is `made` of the topic that a row goes to."""
    if not route.branches:
        return made(route.target)
    return first_of((F.col(BRANCH) == name, made(target)) for name, target in route.branches)


def observed(rows: DataFrame, seen: Observation | str, lookups: Sequence[Lookup]) -> DataFrame:
    """Rows of `spark.sinks.kafka.sink.outgoing`, counted into `seen` while they pass, at no further job; `written` reads it."""
    return rows.observe(
        seen,
        F.count("reason").alias("dead_letters"),
        F.min("timestamp_ms").alias("oldest_ms"),
        F.avg("timestamp_ms").alias("mean_ms"),
        *[
            F.count_if(F.find_in_set(F.lit(lookup.name), F.col("unmatched")) > 0).alias(f"unmatched.{lookup.name}")
            for lookup in lookups
        ],
    )


def written(seen: Mapping[str, Any], lookups: Sequence[Lookup]) -> Written:
    """What `observed` has counted."""
    unmatched = {lookup.name: seen[f"unmatched.{lookup.name}"] for lookup in lookups}
    return Written(seen["dead_letters"], seen["oldest_ms"], seen["mean_ms"], unmatched)

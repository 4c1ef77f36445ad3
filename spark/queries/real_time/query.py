"""One query in Spark's Real-Time Mode: what it needs of the session, its start, and its end.

One query for a fixed set of schemas and dimension versions: Spark plans anew at each interval's end what it runs, but it can't be
told of others while it runs.
"""

from __future__ import annotations

import functools
import json
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import wait
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from contracts.settings import KafkaSettings
from spark.runtime.aside import aside
from spark.runtime.errors import QueryFailed, StopRequested, TooFewSlots
from spark.runtime.internals.real_time import (
    close_producers,
    excludable_rules,
    in_real_time,
    messages_of,
    optimized,
    running_tasks,
)
from spark.runtime.session import is_local, slots_of
from spark.sources.kafka import PRODUCER, kafka_options, read_topic

_TASKS_END_SECONDS = 60.0
_SENT_SECONDS = 120.0
DELIVERY_SECONDS = 1800
"""So long a record may wait for its target partition; then it is given up, and the query fails."""
_LOOK_SECONDS = 0.01

_SOURCE = {
    # After a seek the consumer first waits for the answer to what it asked before: at each interval's end.
    "kafka.fetch.max.wait.ms": "50",
}
_SINK = {
    **PRODUCER,
    "kafka.linger.ms": "0",
    # A batch is a record or two: nothing to gain, and each would take 160 KiB of heap for the codec's buffers.
    "kafka.compression.type": "none",
    # Of a target partition that is away for longer the oldest records are given up, and younger ones of the same key written. By default two minutes.
    "kafka.delivery.timeout.ms": str(DELIVERY_SECONDS * 1000),
}

CHECKPOINT_ON_DISK = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    # Hadoop's usual one keeps checksum files, and has a file's mode set or looked at by a process of its own.
    "fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "fs.file.impl.disable.cache": "true",
}
"""Settings for checkpoints on a disk of the driver's, which each interval's end waits for."""


@contextmanager
def configured(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Of the session, for as long as this lasts; a query keeps what the session had when it started."""
    before = {name: spark.conf.get(name, None) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, earlier in before.items():
            if earlier is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, earlier)


def check_slots(spark: SparkSession, master: str, topic: str, partitions: int) -> None:
    """Raise TooFewSlots unless every partition can have a task of its own, which holds its slot for the whole interval; `master` is what was asked for."""
    slots = slots_of(master) or spark.sparkContext.defaultParallelism
    if slots < partitions:
        raise TooFewSlots(
            f"{topic} has {partitions} partitions, and in real-time mode each one's task holds a slot for good, but "
            f"{master} has {slots}: give Spark {partitions} cores (HEADRACE_SPARK__MASTER=local[{partitions}] on one machine)"
        )


def has_slots_for_two(spark: SparkSession, partitions: int) -> bool:
    """Whether the next query can wait beside the one that runs. Both are threads of one Java process then: on a cluster they aren't."""
    return is_local(str(spark.sparkContext.master)) and spark.sparkContext.defaultParallelism >= 2 * partitions


def read(spark: SparkSession, kafka: KafkaSettings, topic: str, positions: Mapping[int, int]) -> DataFrame:
    """The topic's records from these positions on."""
    starting = json.dumps({topic: {str(partition): offset for partition, offset in positions.items()}})
    return read_topic(spark, kafka, topic, starting_offsets=starting, max_offsets_per_trigger=None, options=_SOURCE)


def failure_of(query: StreamingQuery) -> str:
    """Why a query ended: the message of each exception, the innermost, which is the task's own, first."""
    return "\n".join(reversed(messages_of(query))) or "it ended without an error"


def start(
    records: DataFrame, kafka: KafkaSettings, *, name: str, checkpoint: Path, interval_seconds: float
) -> StreamingQuery:
    """Start writing `records` (topic, key, value, headers) as they come; `checkpoint` is a folder of the driver's own."""
    spark = records.sparkSession
    writer = (
        optimized(records)
        .writeStream.queryName(name)
        .format("kafka")
        .outputMode("update")
        .options(**kafka_options(kafka), **_SINK, includeHeaders="true", checkpointLocation=checkpoint.as_uri())
    )
    in_real_time(writer, interval_seconds)
    # What is optimised already needs none of them.
    with configured(spark, {"spark.sql.optimizer.excludedRules": ",".join(excludable_rules(spark))}):
        return writer.start()


def drain(spark: SparkSession, stopping: threading.Event) -> None:
    """Return when queries that have been stopped can write no more: their tasks are gone, and what they handed to producers is sent.

    Stopping a query waits neither for the one nor for the other, and producers outlive their tasks. Holds for what runs in the driver's
    own process (`local[N]`). Raises QueryFailed if a task doesn't end, or brokers don't take what is to be sent, and StopRequested: what they have
    then is all of each target partition up to some record, as long as nobody else writes before this process has ended.
    """
    until = time.monotonic() + _TASKS_END_SECONDS
    while running := running_tasks(spark):
        if time.monotonic() > until:
            raise QueryFailed(f"{running} tasks of a query that was stopped still run after {_TASKS_END_SECONDS:.0f} s")
        time.sleep(_LOOK_SECONDS)
    sent = aside("drain", functools.partial(close_producers, spark))
    until = time.monotonic() + _SENT_SECONDS
    while not wait([sent], _LOOK_SECONDS).done:
        if stopping.is_set():
            raise StopRequested("asked to stop while brokers had not taken all that a query before had to send")
        if time.monotonic() > until:
            raise QueryFailed(
                f"in {_SENT_SECONDS:.0f} s the brokers have not taken what a query that was stopped had to send: a target partition has no "
                "leader, or its topic is gone"
            )
    sent.result()

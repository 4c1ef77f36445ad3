"""The plan of `live` in Spark's Real-Time Mode, and its start.

One query for a fixed set of schemas and dimension versions: Spark plans anew at each interval's end what it runs, but it can't be
told of others while it runs.
"""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from contracts.settings import KafkaSettings
from spark.runtime.errors import QueryFailed, TooFewSlots
from spark.runtime.internals.plans import frame_of, items
from spark.sources.kafka import PRODUCER, kafka_options, read_topic

_TASKS_END_SECONDS = 60.0
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


def check_slots(spark: SparkSession, topic: str, partitions: int) -> None:
    """Raise TooFewSlots unless every partition can have a task of its own, which holds its slot for the whole interval."""
    context = spark.sparkContext
    slots = context.defaultParallelism
    if slots < partitions:
        raise TooFewSlots(
            f"{topic} has {partitions} partitions, and in real-time mode each one's task holds a slot for good, but "
            f"{context.master} has {slots}: give Spark {partitions} cores (HEADRACE_SPARK__MASTER=local[{partitions}] on one machine)"
        )


def read(spark: SparkSession, kafka: KafkaSettings, topic: str, positions: Mapping[int, int]) -> DataFrame:
    """The topic's records from these positions on."""
    starting = json.dumps({topic: {str(partition): offset for partition, offset in positions.items()}})
    return read_topic(spark, kafka, topic, starting_offsets=starting, max_offsets_per_trigger=None, options=_SOURCE)


def failure_of(query: StreamingQuery) -> str:
    """Why a query ended: the message of each exception, the innermost, which is the task's own, first."""
    found = query._jsq.exception()
    messages = []
    error = found.get() if found.isDefined() else None
    while error is not None:
        messages.append(str(error.getMessage()))
        error = error.getCause()
    return "\n".join(reversed(messages)) or "it ended without an error"


def start(
    records: DataFrame, kafka: KafkaSettings, *, name: str, checkpoint: Path, interval_seconds: float
) -> StreamingQuery:
    """Start writing `records` (topic, key, value, headers) as they come; `checkpoint` is a folder of the driver's own."""
    spark = records.sparkSession
    writer = (
        _optimized(records)
        .writeStream.queryName(name)
        .format("kafka")
        .outputMode("update")
        .options(**kafka_options(kafka), **_SINK, includeHeaders="true", checkpointLocation=checkpoint.as_uri())
    )
    # Spark 4.1 has this trigger, but its Python API doesn't.
    jvm = spark._jvm
    assert jvm is not None
    trigger = jvm.org.apache.spark.sql.streaming.Trigger
    writer._jwrite.trigger(trigger.RealTime(round(interval_seconds * 1000)))
    with configured(spark, {"spark.sql.optimizer.excludedRules": ",".join(_excludable_rules(spark))}):
        return writer.start()


def drain(spark: SparkSession) -> None:
    """Return when queries that have been stopped can write no more: their tasks are gone, and what they handed to producers is sent.

    Stopping a query waits neither for the one nor for the other, and producers outlive their tasks. Holds for what runs in the driver's
    own process (`local[N]`). Raises QueryFailed if a task doesn't end.
    """
    jvm = spark._jvm
    assert jvm is not None
    scheduler = spark._jsparkSession.sparkContext().taskScheduler()
    until = time.monotonic() + _TASKS_END_SECONDS
    while running := sum(items(scheduler.runningTasksByExecutors().values().toSeq())):
        if time.monotonic() > until:
            raise QueryFailed(f"{running} tasks of a query that was stopped still run after {_TASKS_END_SECONDS:.0f} s")
        time.sleep(_LOOK_SECONDS)
    # Closes each producer, which first sends what it has, or gives it up after its delivery timeout.
    getattr(jvm.org.apache.spark.sql.kafka010.producer, "InternalKafkaProducerPool$").__getattr__("MODULE$").reset()


def rehearse(query: StreamingQuery) -> None:
    """Plan and generate once more what runs, for nothing but practice: while an interval's end does it, no record is read.

    There is one end in minutes, so left alone the planner would meet the first ones uncompiled.
    """
    execution = query._jsq.streamingQuery().lastExecution()
    if execution is None:
        return
    jvm = SparkSession.active()._jvm
    assert jvm is not None
    # Planned anew for the text, as for the event that Spark sends when it begins an interval.
    execution.explainString(jvm.org.apache.spark.sql.execution.ExplainMode.fromString("simple"))
    for stage in _stages(execution.executedPlan()):
        stage.doCodeGen()


def _optimized(frame: DataFrame) -> DataFrame:
    """The same rows by a plan that is optimised already: Spark does that three times at each interval's end."""
    spark = frame.sparkSession
    plan = spark._jsparkSession.sessionState().optimizer().execute(frame._jdf.queryExecution().analyzed())
    return frame_of(spark, plan)


@functools.cache
def _excludable_rules(spark: SparkSession) -> list[str]:
    """The optimizer's rules that Spark can do without: what is optimised already needs none of them. Hundreds of calls into the JVM."""
    optimizer = spark._jsparkSession.sessionState().optimizer()
    rules = {str(rule.ruleName()) for batch in items(optimizer.batches()) for rule in items(batch.rules())}
    return sorted(rules.difference(items(optimizer.nonExcludableRules())))


def _stages(plan: Any) -> Iterator[Any]:
    """The parts of a physical plan that code is generated for."""
    if plan.nodeName().startswith("WholeStageCodegen"):
        yield plan
    for child in items(plan.children()):
        yield from _stages(child)

"""What Spark's Python API lacks of queries in Real-Time Mode."""

from __future__ import annotations

import functools
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from spark.runtime.internals.java import java_class
from spark.runtime.internals.plans import frame_of, items, tree


def in_real_time(writer: DataStreamWriter, interval_seconds: float) -> None:
    """Give a query its trigger: Spark 4.1 has it, but its Python API doesn't."""
    trigger = java_class(_jvm(), "org.apache.spark.sql.streaming.Trigger")
    writer._jwrite.trigger(trigger.RealTime(round(interval_seconds * 1000)))


def messages_of(query: StreamingQuery) -> list[str]:
    """Of the exception that ended a query, and of those that caused it, the outermost first."""
    found = query._jsq.exception()
    messages = []
    error = found.get() if found.isDefined() else None
    while error is not None:
        messages.append(str(error.getMessage()))
        error = error.getCause()
    return messages


def running_tasks(spark: SparkSession) -> int:
    """How many tasks run now."""
    scheduler = spark._jsparkSession.sparkContext().taskScheduler()
    return sum(items(scheduler.runningTasksByExecutors().values().toSeq()))


def has_begun(spark: SparkSession, query: StreamingQuery, count: int) -> bool:
    """Whether a task runs of a stage of a query that has so many. They begin together, but the application's status may tell of the others seconds later."""
    tracker = spark.sparkContext.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(str(query.runId))]
    stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
    return any(stage is not None and stage.numTasks == count and stage.numActiveTasks > 0 for stage in stages)


def close_producers(spark: SparkSession) -> None:
    """Close each producer of Spark's Kafka sink in this process: it first sends what it has, or gives it up after its delivery timeout."""
    pool = java_class(_jvm(spark), "org.apache.spark.sql.kafka010.producer.InternalKafkaProducerPool$")
    pool.__getattr__("MODULE$").reset()


def rehearse(query: StreamingQuery) -> None:
    """Plan and generate once more what runs, for nothing but practice: while an interval's end does it, no record is read.

    Ends are far apart, so left alone the planner would meet each one uncompiled.
    """
    execution = query._jsq.streamingQuery().lastExecution()
    if execution is None:
        return
    # Planned anew for the text, as for the event that Spark sends when it begins an interval.
    execution.explainString(java_class(_jvm(), "org.apache.spark.sql.execution.ExplainMode").fromString("simple"))
    for stage in tree(execution.executedPlan()):
        if stage.nodeName().startswith("WholeStageCodegen"):  # a part that code is generated for
            stage.doCodeGen()


def optimized(frame: DataFrame) -> DataFrame:
    """The same rows by a plan that is optimised already: Spark does that three times at each interval's end."""
    spark = frame.sparkSession
    plan = spark._jsparkSession.sessionState().optimizer().execute(frame._jdf.queryExecution().analyzed())
    return frame_of(spark, plan)


@functools.cache
def excludable_rules(spark: SparkSession) -> list[str]:
    """The optimizer's rules that Spark can do without. Hundreds of calls into the JVM."""
    optimizer = spark._jsparkSession.sessionState().optimizer()
    rules = {str(rule.ruleName()) for batch in items(optimizer.batches()) for rule in items(batch.rules())}
    return sorted(rules.difference(items(optimizer.nonExcludableRules())))


def _jvm(spark: SparkSession | None = None) -> Any:
    return (spark or SparkSession.active())._jvm

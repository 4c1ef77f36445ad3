"""A task's rows end early when what feeds them fails: its worker sees the same end of its input as behind the last row.

Each test cuts the input of the exactly-once sink in the middle of a long range, on the real broker. Then the group must stand
behind the last row that was committed, and no further.
"""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from contracts.servers.registry import Registry
from deploy.local.servers.stack import LocalStack
from spark.derivation.derivation import route
from spark.queries.live import Live
from spark.runtime.lifecycle import Lifecycle
from spark.runtime.settings import SparkSettings
from spark.sinks.kafka.exactly_once import ExactlyOnceSink
from tests.jvm import SHORT_LIVED_ENV
from tests.sample.pipelines.dispatches_enriched import dispatches_enriched
from tests.spark.examples import Topics
from tests.spark.live_query import Dimensions, wait_for
from tests.spark.sinks.kafka.hop import Hop

LONG = 120_000
"""Records in a partition: some seconds' work, and many Arrow messages of 1,000 rows."""

BOTH = (0, 1)
ALL = dict.fromkeys(BOTH, (0, LONG))


@pytest.fixture
def hop(spark: SparkSession, settings: SparkSettings, topics: Topics) -> Hop:
    return Hop.of(spark, settings, topics)


@pytest.fixture
def backlog(topics: Topics) -> None:
    for partition in BOTH:
        topics.send_many(LONG, partition=partition)


@pytest.mark.usefixtures("backlog")
def test_records_deleted_before_a_running_task_reads_them_are_not_passed_over(hop: Hop) -> None:
    def at_a_bounded_rate(raw: DataFrame) -> DataFrame:
        # A machine that is busy with other work may delete later than a batch takes.
        pause = F.expr("offset % 1000 = 0 AND reflect('java.lang.Thread', 'sleep', 100L) = 'never'")
        return raw.withColumn("value", F.when(pause, F.raise_error(F.lit("never"))).otherwise(F.col("value")))

    gone = LONG - 5_000
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(hop.write_all, ALL, at_a_bounded_rate)
        wait_for("the first rows to be sent", lambda: hop.seen() > 2_000)
        delete(hop.settings, hop.route.source, gone)
        with pytest.raises(Py4JJavaError, match="Some data may have been lost"):
            writing.result()
    assert all(position < gone for position in whole_up_to_its_position(hop))


@pytest.mark.usefixtures("backlog")
def test_an_error_in_one_partition_moves_no_other_beyond_the_rows_that_came(hop: Hop) -> None:
    def spoil(raw: DataFrame) -> DataFrame:
        there = (F.col("partition") == 1) & (F.col("offset") == LONG // 4)
        return raw.withColumn("value", F.when(there, F.raise_error(F.lit("spoilt"))).otherwise(F.col("value")))

    with pytest.raises(PySparkException, match="spoilt"):
        hop.write_all(ALL, spoil)
    assert all(position < LONG for position in whole_up_to_its_position(hop))
    # What was cut off comes with the next batch, once.
    hop.write_all(ALL)
    assert whole_up_to_its_position(hop) == [LONG, LONG]


@pytest.mark.usefixtures("backlog")
def test_a_batch_that_outlasts_the_grace_of_a_stop_is_not_passed_over(
    hop: Hop, registry: Registry, published: Dimensions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark.runtime.lifecycle._GRACE_SECONDS", 0.0)
    catalog = dataclasses.replace(hop.topics.catalog, dimensions=published.contracts)
    # The group is one for all tests, their topics are not.
    hop.route = route(dispatches_enriched, catalog)
    lifecycle = Lifecycle()
    sink = ExactlyOnceSink(hop.settings.kafka, hop.route, hop.settings.live)
    query = Live(hop.spark, dispatches_enriched, hop.settings, catalog, registry, sink, lifecycle).start()
    assert query is not None
    running = threading.Thread(target=lifecycle.run, args=[[query]])
    running.start()
    wait_for("the first rows to be sent", lambda: hop.seen() > 2_000)
    lifecycle.stopping.set()
    running.join(60)
    assert not running.is_alive()
    assert all(position < LONG for position in whole_up_to_its_position(hop))


def test_a_task_that_is_tried_again_sends_what_its_first_try_did_not_see(hop: Hop, stack: LocalStack) -> None:
    count = 5_000
    hop.topics.send_many(count)
    command = [sys.executable, "-m", "tests.spark.sinks.kafka.hop", hop.topics.tag, hop.route.query, str(count)]
    env = {**os.environ, **stack.settings_env(), **SHORT_LIVED_ENV, "HEADRACE_SPARK__MASTER": "local[2,2]"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-2_000:]
    assert "USER_RAISED_EXCEPTION] spoilt" in done.stderr
    assert whole_up_to_its_position(hop, [0]) == [count]


def whole_up_to_its_position(hop: Hop, partitions: Sequence[int] = BOTH) -> list[int]:
    """The group's positions; each partition's rows must be there once from the first up to there, and none beyond."""
    positions = [hop.position(partition) or 0 for partition in partitions]
    written = hop.written_of_all()
    for partition, position in zip(partitions, positions, strict=True):
        assert written[partition] == Counter(range(position)), f"partition {partition}, at {position}"
    return positions


def delete(settings: SparkSettings, topic: str, before: int) -> None:
    """Records below an offset, in both partitions, as retention does."""
    ends = [TopicPartition(topic, partition, before) for partition in BOTH]
    admin = AdminClient({**settings.kafka.client_config()})
    for future in admin.delete_records(ends).values():
        future.result(30)

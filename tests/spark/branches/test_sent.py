"""A branch on the real stack: each record is in one of its topics, once, whatever died."""

from __future__ import annotations

import dataclasses
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from pyspark.sql import DataFrame, SparkSession

from contracts.definitions.catalog import Catalog
from contracts.servers.brokers import watermarks
from contracts.servers.registry import Registry
from deploy import pipelines
from deploy.local.servers.stack import LocalStack
from spark.derivation.derivation import route
from spark.pipeline import Pipeline
from spark.runtime.settings import SparkSettings
from spark.sinks.kafka.transaction import committed_offsets, position_reader
from spark.sources.checkpoint_offsets import CheckpointOffsets, checkpoint_folder
from spark.trial.trial import Trial
from tests.producers import ordered
from tests.sample.pipelines.dispatches_by_punctuality import dispatches_by_punctuality
from tests.spark import real_time_query
from tests.spark.examples import DISPATCHED, Topics, a_dispatch, body, framed
from tests.spark.live_query import Dimensions, events, running, wait_for
from tests.spark.queries.test_processes import Place

OVERDUE, PUNCTUAL = dispatches_by_punctuality.targets
COUNT = 60_000
"""Records of a partition: to send them takes longer than to see that the first were sent."""


@pytest.fixture
def branch(settings: SparkSettings, catalog: Catalog, registry: Registry) -> Iterator[Topics]:
    with Topics(settings, catalog, registry, names=(DISPATCHED, OVERDUE, PUNCTUAL)) as made:
        yield made


def send(topics: Topics, *late_minutes: int, **fields: object) -> None:
    """A record for each, in turn to both partitions."""
    for number, late in enumerate(late_minutes):
        event = a_dispatch(late_minutes=late, **fields)
        topics.send(framed(topics.schema_ids[DISPATCHED], body(event)), partition=number % 2)


def made(topics: Topics, name: str) -> Counter[str]:
    """How often a raw record is in a topic: partition and offset."""
    found = events(topics, name)
    actual = topics.catalog.topic(name).name
    assert {headers["ce_type"] for _, headers, _ in found} <= {actual.encode()}
    return Counter(str(headers["ce_id"], "ascii").removeprefix(f"{topics.dispatched.name}/") for _, headers, _ in found)


@pytest.mark.parametrize("mode", ["exactly-once", "at-least-once"])
def test_each_record_is_in_the_topic_that_its_row_names(
    spark: SparkSession, settings: SparkSettings, registry: Registry, published: Dimensions, branch: Topics, mode: str
) -> None:
    # Of a name of its own: in at-least-once mode a query goes on with the checkpoint that it finds.
    mine = dataclasses.replace(dispatches_by_punctuality, name=f"{branch.tag}_{mode.replace('-', '_')}")
    with running(spark, settings, registry, produced_by(branch, mine), published, mine, mode=mode) as query:
        send(branch, 30, 15)
        send(branch, 30, weight_grams=0)
        branch.send(b"junk", partition=1)
        query.processAllAvailable()
        send(branch, 0, 16)
        query.processAllAvailable()
    assert made(branch, OVERDUE) == Counter(["0/0", "1/2"])
    assert made(branch, PUNCTUAL) == Counter(["1/0", "0/2"])
    (letter,) = branch.read(branch.dispatched.dead_letter_topic)
    assert dict(letter.headers() or [])["ce_id"] == f"{branch.dispatched.name}/1/1".encode()


@pytest.mark.long
def test_exactly_once_goes_on_where_real_time_mode_has_written_to_both_topics(
    spark: SparkSession, settings: SparkSettings, registry: Registry, published: Dimensions, branch: Topics
) -> None:
    mine, first = dispatches_by_punctuality, ["0/0", "1/0", "0/1", "1/1"]
    with real_time_query.running(spark, settings, registry, branch, published, mine, interval_seconds=5.0):
        send(branch, 30, 0, 0, 30)
        wait_for("both topics", lambda: made(branch, OVERDUE) + made(branch, PUNCTUAL) == Counter(first))
    send(branch, 30, 0)
    with running(spark, settings, registry, branch.catalog, published, mine, mode="exactly-once") as query:
        query.processAllAvailable()
    assert made(branch, OVERDUE) == Counter(["0/0", "1/1", "0/2"])
    assert made(branch, PUNCTUAL) == Counter(["1/0", "0/1", "1/2"])


def test_a_pipeline_that_becomes_a_branch_goes_on_with_its_checkpoint(
    spark: SparkSession, settings: SparkSettings, registry: Registry, published: Dimensions, branch: Topics
) -> None:
    both = dataclasses.replace(dispatches_by_punctuality, name=f"{branch.tag}_mine")
    catalog = produced_by(branch, both)
    one = dataclasses.replace(both, writes=PUNCTUAL, function=lambda dispatches: dispatches.where("late_minutes <= 15"))
    with running(spark, settings, registry, catalog, published, one, mode="at-least-once") as query:
        send(branch, 0, 30, 0)
        query.processAllAvailable()
    with running(spark, settings, registry, catalog, published, both, mode="at-least-once") as query:
        send(branch, 0, 30)
        query.processAllAvailable()
    assert made(branch, PUNCTUAL) == Counter(["0/0", "0/1", "0/2"])
    assert made(branch, OVERDUE) == Counter(["1/1"])
    # A name that begins alike is another's.
    assert CheckpointOffsets(settings.s3, checkpoint_folder(both.name)).folders()
    assert CheckpointOffsets(settings.s3, checkpoint_folder(both.name.removesuffix("_mine"))).folders() == []


def produced_by(topics: Topics, pipeline: Pipeline) -> Catalog:
    """With a pipeline among the producers of each topic."""
    own = {
        name: topic.model_copy(update={"producers": (*topic.producers, pipeline.name)})
        for name, topic in topics.catalog.topics.items()
    }
    return dataclasses.replace(topics.catalog, topics=own)


@pytest.mark.long
def test_a_trial_tells_of_each_topic_which_records_would_go_elsewhere(
    spark: SparkSession, settings: SparkSettings, registry: Registry, published: Dimensions, branch: Topics
) -> None:
    send(branch, 30, 0, 20)
    branch.send(b"junk")
    with running(
        spark, settings, registry, branch.catalog, published, dispatches_by_punctuality, mode="exactly-once"
    ) as query:
        query.processAllAvailable()

    def later(dispatches: DataFrame) -> DataFrame:
        made = dispatches_by_punctuality(dispatches)
        return made.selectExpr("* EXCEPT (branch)", "if(late_minutes > 25, 'overdue', 'punctual') AS branch")

    def counts(pipeline: Pipeline, name: str) -> dict[tuple[str, str], int]:
        found = Trial(spark, pipeline, settings, branch.catalog, registry, name).run(100)
        return {(each.what, each.name): each.count for each in found.outcomes}

    letter = {("still a dead letter", "WrongMagic"): 1}
    assert counts(dispatches_by_punctuality, "overdue") == letter | {("same", ""): 2, ("left out", ""): 1}
    changed = dataclasses.replace(dispatches_by_punctuality, function=later)
    assert counts(changed, "overdue") == letter | {("same", ""): 1, ("vanishes", ""): 1, ("left out", ""): 1}
    assert counts(changed, "punctual") == letter | {("same", ""): 1, ("appears", ""): 1, ("left out", ""): 1}


@pytest.fixture
def place(
    stack: LocalStack, settings: SparkSettings, branch: Topics, published: Dimensions, tmp_path: Path
) -> Iterator[Place]:
    with Place(stack, settings, branch, published, tmp_path) as place:
        yield place


@pytest.mark.long
def test_what_was_killed_in_its_transaction_is_in_one_topic_once(
    place: Place, branch: Topics, settings: SparkSettings
) -> None:
    kafka = settings.kafka.client_config()
    producer = ordered({**kafka, "linger.ms": 20, "queue.buffering.max.messages": 2 * COUNT})
    late, punctual = (framed(branch.schema_ids[DISPATCHED], body(a_dispatch(late_minutes=each))) for each in (30, 0))
    for offset in range(COUNT):
        for partition in (0, 1):
            producer.produce(branch.dispatched.name, late if offset % 3 == 0 else punctual, partition=partition)
    assert producer.flush(60) == 0
    reader = Consumer({**kafka, "group.id": "tests", "isolation.level": "read_uncommitted"})
    names = [branch.catalog.topic(each).name for each in (OVERDUE, PUNCTUAL)]

    def seen(name: str) -> int:
        """Records of open transactions too."""
        return sum(watermarks(reader, name, partition, 30)[1] for partition in (0, 1))

    process = place.start(dispatches_by_punctuality.name)
    wait_for("records in both topics", lambda: all(seen(name) > 0 for name in names))
    process.kill()
    positions = position_reader(kafka, route(dispatches_by_punctuality, branch.catalog))
    taken = committed_offsets(positions, branch.dispatched.name, [0, 1])
    assert min(each or 0 for each in taken.values()) < COUNT, "it was not killed in a transaction"
    print(f"killed with {[seen(name) for name in names]} records in the topics, positions {taken}")

    process = place.start(dispatches_by_punctuality.name)
    done = {0: COUNT, 1: COUNT}
    wait_for("all to be taken in", lambda: committed_offsets(positions, branch.dispatched.name, [0, 1]) == done)
    state = pipelines.PipelineState(process.name, branch.dispatched.name, tuple(names), "some")
    (now,) = pipelines.running(settings, [state])
    assert (str(now.holder).endswith(f"/{process.process.pid}"), now.lag) == (True, 0)
    process.process.send_signal(signal.SIGTERM)
    assert process.process.wait(60) == 0, process.last_words()
    for found in (reader, positions):
        found.close()
    for name, is_late in ((OVERDUE, True), (PUNCTUAL, False)):
        expected = Counter(
            f"{partition}/{offset}" for partition in (0, 1) for offset in range(COUNT) if (offset % 3 == 0) == is_late
        )
        sent = made(branch, name)
        # To show the difference of two that are so large would take pytest minutes.
        assert (expected - sent, sent - expected) == (Counter(), Counter())

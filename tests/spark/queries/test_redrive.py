"""After the fix, dead letters go back and are enriched once each, though the redrive is killed in the middle."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter

from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]
from pyspark.sql import SparkSession

from contracts.dead_letters.selection import Verdict
from contracts.servers.registry import Registry
from deploy.local.servers.stack import LocalStack
from spark.runtime.settings import SparkSettings
from tests.dead_letters.place import Place
from tests.producers import ordered
from tests.spark.examples import Topics, a_dispatch, body, framed, schema_with
from tests.spark.live_query import Dimensions, events, running

LETTERS = 6000
KILLED_AFTER = 1500
NEWER = schema_with({"name": "gate", "type": "string", "default": "?"})


def test_a_redrive_killed_in_the_middle_and_run_again_has_each_record_enriched_once(
    spark: SparkSession,
    settings: SparkSettings,
    stack: LocalStack,
    registry: Registry,
    topics: Topics,
    published: Dimensions,
) -> None:
    # A producer sends with a version that nobody registered under this subject: an id, but not one of the topic's.
    schema_id = registry.register(f"elsewhere-{topics.dispatched.subject}", NEWER)
    _send(settings, topics, schema_id)
    place = Place(settings, registry, topics.dispatched.name)
    with running(spark, settings, registry, topics.catalog, published, dead_letter_limit=1.0) as query:
        query.processAllAvailable()
        letters = topics.read(topics.dispatched.dead_letter_topic)
        assert (len(letters), events(topics)) == (LETTERS, [])
        # Sent back before the fix, one fails again, and is no longer taken along by itself.
        assert place.redrive(coordinate=f"{topics.dispatched.name}/0/0") == {Verdict.REDRIVE: 1}
        query.processAllAvailable()
        assert place.redrive(dry_run=True) == {
            Verdict.REDRIVE: LETTERS - 1,
            Verdict.REDRIVEN: 1,
            Verdict.FAILED_AGAIN: 1,
        }

        assert registry.register(topics.dispatched.subject, NEWER) == schema_id
        _killed_in_the_middle(stack, settings, topics.dispatched.name)
        done = len(place.entries())
        assert 1 < done < LETTERS
        assert place.redrive(again=True) == {Verdict.REDRIVEN: done, Verdict.REDRIVE: LETTERS + 1 - done}
        assert place.redrive(again=True) == {Verdict.REDRIVEN: LETTERS + 1}
        query.processAllAvailable()
        enriched = events(topics)
    assert Counter(headers["ce_causationid"] for _, headers, _ in enriched) == {
        f"id-{number}".encode(): 1 for number in range(LETTERS)
    }
    assert {event["courier_name"] for event, _, _ in enriched} == {"Umber Couriers Ltd."}


def _send(settings: SparkSettings, topics: Topics, schema_id: int) -> None:
    producer = ordered(settings.kafka.client_config())
    value = framed(schema_id, body(a_dispatch(gate="C70"), NEWER))
    for number in range(LETTERS):
        producer.produce(topics.dispatched.name, value, partition=number % 2, headers=[("ce_id", f"id-{number}")])
    assert producer.flush(60) == 0


def _killed_in_the_middle(stack: LocalStack, settings: SparkSettings, topic: str) -> None:
    admin = AdminClient(dict(settings.kafka.client_config()))

    def appended() -> int:
        newest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        asked = {TopicPartition(topic, partition): newest for partition in (0, 1)}
        answers = admin.list_offsets(asked, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=10)
        return sum(answer.result().offset for answer in answers.values())

    before = appended()
    command = [sys.executable, "-m", "tests.dead_letters.redriver", topic]
    with subprocess.Popen(command, env={**os.environ, **stack.settings_env()}) as process:
        deadline = time.monotonic() + 60
        while appended() < before + KILLED_AFTER:
            assert time.monotonic() < deadline and process.poll() is None, "waited for the redrive to get going"
        process.kill()
        assert process.wait() == -9

"""How far a run has come, by notes and a checkpoint that may not be there to be read."""

from __future__ import annotations

import json
import uuid

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from contracts.servers.s3 import s3_client
from contracts.settings import Settings
from deploy.local.servers.stack import LocalStack
from services.audit.errors import CouldNotAudit
from services.audit.sources.broker import Broker
from services.audit.sources.state_position import StatePosition, state_position, told
from tests.producers import ordered

UNREAD, THERE = StatePosition({}, is_told=False), StatePosition({"raw": {0: 7}}, 5_000, 3)


def test_what_can_not_be_read_at_once_is_asked_for_again() -> None:
    answers = iter([UNREAD, UNREAD, THERE])
    assert told(lambda: next(answers), "checkpoints/a") == THERE
    assert told(lambda: None, "checkpoints/a") is None
    with pytest.raises(CouldNotAudit, match="checkpoints/a"):
        told(lambda: UNREAD, "checkpoints/a")


@pytest.mark.system
def test_a_checkpoint_that_can_not_be_read_is_not_taken_for_a_run_that_has_written_nothing(stack: LocalStack) -> None:
    settings, target = stack.settings(), f"trial-{uuid.uuid4().hex}"
    kafka = settings.kafka.client_config()
    admin = AdminClient({**kafka})
    admin.create_topics([NewTopic(target, 2, 1)])[target].result()
    producer = ordered(kafka)
    producer.produce(target, b"v")
    assert producer.flush(30) == 0, "the topic is there"
    broker = Broker(kafka)

    def position() -> StatePosition | None:
        return state_position(broker, settings.s3, "trial", target)

    note(settings, target, ("0a0a0a0a", -1), ("0a0a0a0a", -1))
    assert position() == StatePosition({}), "the run has written nothing"
    note(settings, target, ("0a0a0a0a", 4), ("0a0a0a0a", 3))
    assert position() == UNREAD
    s3, folder = s3_client(settings.s3), f"checkpoints/trial/{target}/0a0a0a0a"
    s3.put_object(Bucket=settings.s3.bucket, Key=f"{folder}/metadata", Body=b"{}")
    body = b'v1\n{"batchWatermarkMs":5000}\n{"raw":{"0":7}}'
    s3.put_object(Bucket=settings.s3.bucket, Key=f"{folder}/offsets/3", Body=body)
    found = position()
    assert found is not None
    assert found.begun_ms > 0
    assert found == THERE._replace(begun_ms=found.begun_ms)
    note(settings, target, ("0a0a0a0a", 4), ("0b0b0b0b", 0))
    assert position() == UNREAD, "one run goes, another comes"


def note(settings: Settings, target: str, *said: tuple[str, int]) -> None:
    """Of each state partition a run and its last batch."""
    group = Consumer({**settings.kafka.client_config(), "group.id": "trial.state"})
    notes = [{"run": run, "batch": batch, "begins": "first", "partitions": len(said)} for run, batch in said]
    offsets = [TopicPartition(target, at, 1, json.dumps(each)) for at, each in enumerate(notes)]
    group.commit(offsets=offsets, asynchronous=False)
    group.close()

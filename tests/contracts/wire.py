"""What the tests of publisher and subscriber see of a topic: its raw records, read by a client of their own."""

from __future__ import annotations

import time
import uuid
from datetime import UTC, date, datetime
from typing import Any

import httpx
from confluent_kafka import Consumer, Message, TopicPartition

from contracts.settings import Settings
from tests.sample import events


def a_dispatch(**fields: Any) -> events.ParcelDispatched:
    """A valid dispatch, with `fields` in place of the usual ones."""
    usual = events.ParcelDispatched(
        parcel_id="UA1545-EST-20130101T1015Z",
        courier="UA",
        parcel_number=1545,
        van_id="N14228",
        origin="EST",
        destination="IAH",
        posted_on=date(2013, 1, 1),
        due_at=datetime(2013, 1, 1, 10, 15, tzinfo=UTC),
        dispatched_at=datetime(2013, 1, 1, 10, 17, tzinfo=UTC),
        late_minutes=2,
        weight_grams=1400,
    )
    return usual.model_copy(update=fields)


def register_protobuf(registry_url: str, subject: str) -> int:
    """The id of a schema that somebody else registered, of a kind that is not Avro nor JSON."""
    body = {"schemaType": "PROTOBUF", "schema": 'syntax = "proto3"; message Theirs { string name = 1; }'}
    response = httpx.post(f"{registry_url}/subjects/{subject}/versions", json=body, trust_env=False)
    response.raise_for_status()
    return int(response.json()["id"])


def records_of(topic: str, settings: Settings, *, timeout_seconds: float = 30) -> list[Message]:
    """Every committed record that the topic holds now, by partition and offset."""
    config = {
        "group.id": f"tests-{uuid.uuid4().hex}",
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
    }
    consumer = Consumer({**settings.kafka.client_config(), **config})
    try:
        partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
        consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
        ended: set[int | None] = set()
        found: list[Message] = []
        deadline = time.monotonic() + timeout_seconds
        while ended != set(partitions):
            assert time.monotonic() < deadline, f"waited for the end of {topic}"
            message = consumer.poll(0.5)
            if message is None:
                continue
            if message.error() is None:
                found.append(message)
            else:
                ended.add(message.partition())
    finally:
        consumer.close()
    return sorted(found, key=lambda message: (message.partition() or 0, message.offset() or 0))

"""Records that go to partitions while these are created."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from contracts.servers.brokers import watermarks
from contracts.servers.producer_config import PRODUCER_CONFIG
from deploy.local.servers.stack import LocalStack

ROUNDS, TOPICS, PARTITIONS, RECORDS = 40, 30, 2, 6
"""With five requests in flight, four of these 2,400 partitions lost their first record on a busy machine: its delivery has no offset."""


@pytest.mark.long
def test_what_is_delivered_to_a_new_partition_is_there(stack: LocalStack) -> None:
    kafka = stack.settings().kafka.client_config()
    admin, reader = AdminClient({**kafka}), Consumer({**kafka, "group.id": "tests"})
    # Requests as small and as close together as they can be. The record before gets the producer its id, so that nothing delays them.
    hasty = {"linger.ms": 0, "batch.num.messages": 1, "topic.metadata.refresh.fast.interval.ms": 10}
    warm = f"warm-{uuid.uuid4().hex}"
    admin.create_topics([NewTopic(warm, 1)])[warm].result()
    for _ in range(ROUNDS):
        producer = Producer({**PRODUCER_CONFIG, **kafka, **hasty})
        producer.produce(warm, b"first")
        assert producer.flush(30) == 0
        names = [f"new-{uuid.uuid4().hex}" for _ in range(TOPICS)]
        created = admin.create_topics([NewTopic(name, PARTITIONS) for name in names])
        offsets = defaultdict[tuple[str, int], list[int | None]](list)
        for name in names:
            for number in range(RECORDS):
                for partition in range(PARTITIONS):
                    arrived = _into(offsets[name, partition])
                    producer.produce(name, str(number).encode(), partition=partition, on_delivery=arrived)
        for future in created.values():
            future.result()
        assert producer.flush(60) == 0
        for (name, partition), found in offsets.items():
            assert (found, watermarks(reader, name, partition, 30)[1]) == (list(range(RECORDS)), RECORDS)
        for future in admin.delete_topics(names).values():
            future.result()
    reader.close()


def _into(offsets: list[int | None]) -> Callable[[KafkaError | None, Message], None]:
    def arrived(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        offsets.append(message.offset())

    return arrived

"""`listen`: a polling consumer, whose view of latency is what the benchmarks tell."""

from __future__ import annotations

from uuid import uuid4

from confluent_kafka import Consumer, TopicPartition

from contracts.servers.brokers import watermarks
from contracts.settings import Settings


def listen(settings: Settings, *names: str, only_new: bool = False) -> Consumer:
    """A polling consumer of all committed records of these topics, from the first one on, or only of those that are yet to come."""
    consumer = Consumer(
        settings.kafka.client_config()
        | {
            "group.id": f"bench-{uuid4()}",
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 100,
            "fetch.queue.backoff.ms": 1,
        }
    )
    known = consumer.list_topics(timeout=10).topics
    places = [(name, partition) for name in names for partition in known[name].partitions]
    consumer.assign(
        [TopicPartition(*place, watermarks(consumer, *place, 10)[1] if only_new else 0) for place in places]
    )
    return consumer

"""What tests append records with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from contracts.servers.producer_config import PRODUCER_CONFIG

_AS_OURS = ("enable.idempotence", "max.in.flight.requests.per.connection", "message.max.bytes")


def ordered(config: Mapping[str, Any]) -> Producer:
    """A producer whose records are each written once, in order. Its `flush` raises KafkaException if one was not delivered.

    Idempotent, with one request in flight, as the product's are: retries neither double nor reorder records, and none is lost in a new partition.
    It takes records as large as they do.
    """
    own = {"enable.sparse.connections": False, "on_delivery": _arrived}
    producer = Producer({name: PRODUCER_CONFIG[name] for name in _AS_OURS} | own | {**config})
    # Connected now: else librdkafka's timer of 500 ms delays the first record.
    producer.list_topics(timeout=30)
    return producer


def _arrived(error: KafkaError | None, _: Message) -> None:
    if error is not None:
        raise KafkaException(error)

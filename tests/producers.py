"""What tests append records with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from contracts.servers.producer_config import PRODUCER_CONFIG

_SAFE = ("enable.idempotence", "max.in.flight.requests.per.connection")


def ordered(config: Mapping[str, Any]) -> Producer:
    """One whose records are each in their topic once, in the order in which they were produced.

    It is idempotent as those of the product are: else it sends what a topic that is new has refused again behind what that one has taken
    meanwhile. Its `flush` raises KafkaException of a record that was not taken.
    """
    own = {"enable.sparse.connections": False, "on_delivery": _arrived}
    producer = Producer({name: PRODUCER_CONFIG[name] for name in _SAFE} | own | {**config})
    # With the connections up, its first record takes milliseconds; without, a timer of half a second.
    producer.list_topics(timeout=30)
    return producer


def _arrived(error: KafkaError | None, _: Message) -> None:
    if error is not None:
        raise KafkaException(error)

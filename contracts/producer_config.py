"""What every producer of ours is set to. Spark's Python workers import it, so it imports nothing of weight."""

from __future__ import annotations

from typing import Any

MAX_DEAD_LETTER_BYTES = 2 << 20
"""A record as large as Kafka lets a topic's records be by default fits into its dead letters, with all that is added."""

PRODUCER_CONFIG: dict[str, Any] = {
    "enable.idempotence": True,  # implies acks=all, and order within a partition over retries
    "acks": "all",
    "partitioner": "murmur2_random",  # Java's, so that a key meets its like in Spark
    "compression.type": "lz4",
    "linger.ms": 5,
    "queue.buffering.max.messages": 100_000,
    "message.max.bytes": MAX_DEAD_LETTER_BYTES,  # what a topic itself takes is for the broker to say
}
"""librdkafka properties."""

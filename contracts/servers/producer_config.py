"""What every producer of ours is set to. Spark's Python workers import it, so it imports nothing of weight."""

from __future__ import annotations

from typing import Any

from contracts.records.limits import LARGEST_BATCH_BYTES

PRODUCER_CONFIG: dict[str, Any] = {
    "enable.idempotence": True,  # implies acks=all, and order within a partition over retries
    "acks": "all",
    "partitioner": "murmur2_random",  # Java's, so that a key meets its like in Spark
    "compression.type": "lz4",
    "linger.ms": 5,
    "queue.buffering.max.messages": 100_000,
    "message.max.bytes": LARGEST_BATCH_BYTES,
}
"""librdkafka properties."""

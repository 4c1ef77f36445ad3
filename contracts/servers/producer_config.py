"""What every producer of ours is set to. Spark's Python workers import it, so it imports nothing of weight."""

from __future__ import annotations

from typing import Any

from contracts.records.limits import LARGEST_BATCH_BYTES

PRODUCER_CONFIG: dict[str, Any] = {
    "enable.idempotence": True,  # implies acks=all, and order within a partition over retries
    "acks": "all",
    # The broker takes any sequence number as a producer's first in a partition. If it refuses the first request, because the partition is so
    # new that its log does not stand, and takes the second, librdkafka reports the records of both as delivered.
    "max.in.flight.requests.per.connection": 1,
    "partitioner": "murmur2_random",  # Java's, so that a key meets its like in Spark
    "compression.type": "lz4",
    "linger.ms": 5,
    "queue.buffering.max.messages": 100_000,
    "message.max.bytes": LARGEST_BATCH_BYTES,
}
"""librdkafka properties."""

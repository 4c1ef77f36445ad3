"""What every producer of ours is set to, and how one is closed. Spark's Python workers import it, so it imports nothing of weight."""

from __future__ import annotations

import warnings
from typing import Any

from confluent_kafka import KafkaException, Producer

from contracts.records.limits import LARGEST_BATCH_BYTES

LONGEST_TRANSACTION_SECONDS = 300.0
"""After so long at most, brokers abort a transaction of ours whose producer is gone."""

PRODUCER_CONFIG: dict[str, Any] = {
    "enable.idempotence": True,  # order within a partition over retries
    "acks": "all",
    # With more requests in flight, the first records in a new partition can be lost and reported as delivered (brokers before 4.5, KAFKA-15591): the broker
    # refuses the first request, because it has not created the log yet, and accepts the second, whatever its sequence number.
    "max.in.flight.requests.per.connection": 1,
    "partitioner": "murmur2_random",  # Java's, so that a key goes to the same partition as from Spark
    "compression.type": "lz4",
    "linger.ms": 5,
    "queue.buffering.max.messages": 100_000,
    "message.max.bytes": LARGEST_BATCH_BYTES,
}
"""librdkafka properties."""

UNBROKEN_SECONDS = 0.1
"""Wait in steps of this for delivery reports: the client cuts waits of 0.2 s or more into pieces, and in the piece after a fatal error it calls
the report's callback with that error already raised, which loses the report.
"""


def close_producer(producer: Producer) -> None:
    """Close one that may have been fenced: that it can't abort its transaction then is no news."""
    with warnings.catch_warnings(action="ignore", category=RuntimeWarning):
        try:
            producer.close()
        except KafkaException as error:
            if not error.args[0].fatal():
                raise

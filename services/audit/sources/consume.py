"""The committed records of one partition, from one offset up to another."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from services.audit.errors import CouldNotAudit

_AT_ONCE = 10_000
_PATIENCE_SECONDS = 0.1
_SILENT_SECONDS = 30.0

_CONFIG = {
    "group.id": "headrace-audit",  # needed by the client; never joined, nothing is committed
    "isolation.level": "read_committed",
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    # What retention takes while it is read must not look like a gap.
    "auto.offset.reset": "error",
    "fetch.wait.max.ms": 50,
    "queued.max.messages.kbytes": 16_384,
    "log_level": 0,
}


def consume(kafka: Mapping[str, str], topic: str, partition: int, start: int, end: int) -> Iterator[list[Message]]:
    """The records at the offsets from `start` up to, not including, `end`, in batches of at most 10,000.

    Offsets that hold transaction markers, aborted or compacted records are passed over. `end` must be at most the
    partition's last stable offset. Raises CouldNotAudit if records are gone, or the broker is silent for 30 s.
    """
    if start >= end:
        return
    consumer = Consumer({**_CONFIG, **kafka})
    try:
        consumer.assign([TopicPartition(topic, partition, start)])
        heard_at = time.monotonic()
        ended = False
        while not ended:
            found = consumer.consume(_AT_ONCE, _PATIENCE_SECONDS)
            if found:
                heard_at = time.monotonic()
            elif time.monotonic() - heard_at > _SILENT_SECONDS:
                raise CouldNotAudit(f"{topic}/{partition}: the broker sent nothing for {_SILENT_SECONDS:.0f} s")
            batch = []
            for message in found:
                error, offset = message.error(), message.offset() or 0
                if error is not None:
                    ended |= _ends(error, topic, partition) and offset >= end
                elif offset < end:
                    batch.append(message)
                else:
                    ended = True
            if batch:
                yield batch
    finally:
        consumer.close()


def _ends(error: KafkaError, topic: str, partition: int) -> bool:
    if error.code() == KafkaError._PARTITION_EOF:
        return True
    if error.code() == KafkaError._AUTO_OFFSET_RESET:
        raise CouldNotAudit(f"{topic}/{partition}: records were deleted while they were read: run it again")
    if error.fatal() or not error.retriable():
        raise CouldNotAudit(f"{topic}/{partition}: {error.str()}")
    return False

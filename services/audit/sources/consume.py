"""The committed records of one partition, from one offset up to another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from confluent_kafka import Consumer, KafkaError, KafkaException, Message

from contracts.errors import ConsumeError
from contracts.servers.ranges import OffsetRange, records_in
from services.audit.errors import CouldNotAudit

_AT_ONCE = 10_000
_FILL_SECONDS = 0.1
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
        yield from records_in(
            consumer,
            [OffsetRange(topic, partition, start, end)],
            silent_seconds=_SILENT_SECONDS,
            most=_AT_ONCE,
            fill_seconds=_FILL_SECONDS,
        )
    except KafkaException as failure:
        error: KafkaError = failure.args[0]
        why = error.str()
        if error.code() == KafkaError._AUTO_OFFSET_RESET:
            why = "records were deleted while they were read: run it again"
        raise CouldNotAudit(f"{topic}/{partition}: {why}") from failure
    except ConsumeError as silence:
        raise CouldNotAudit(str(silence)) from silence
    finally:
        consumer.close()

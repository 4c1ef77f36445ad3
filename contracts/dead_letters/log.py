"""Topics read from their first record to their last: dead letters and their ledger."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    IsolationLevel,
    KafkaException,
    Message,
)
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from contracts.errors import ConsumeError
from contracts.servers.brokers import list_offsets, retried, watermarks
from contracts.servers.producer_config import LONGEST_TRANSACTION_SECONDS
from contracts.servers.ranges import OffsetRange, records_in
from contracts.settings import KafkaSettings

_PATIENCE_SECONDS = 15.0
_OPEN_TRANSACTION_SECONDS = LONGEST_TRANSACTION_SECONDS + 30.0
"""By then brokers have aborted any of ours."""
_LOOK_SECONDS = 0.1
_AT_ONCE = 100
"""Records of a megabyte each, at worst."""

_log = logging.getLogger(__name__)


def topics_there(kafka: KafkaSettings) -> dict[str, int]:
    """The number of partitions of each topic. Raises ConsumeError if the brokers don't answer."""
    try:
        found = _admin(kafka).list_topics(timeout=_PATIENCE_SECONDS).topics
    except KafkaException as error:
        raise ConsumeError(f"the brokers at {kafka.bootstrap_servers} say: {error.args[0].str()}") from error
    for name, topic in found.items():
        if topic.error is not None:
            raise ConsumeError(f"{name}: {topic.error.str()}: try again")
    return {name: len(topic.partitions) for name, topic in found.items()}


def committed_records(kafka: KafkaSettings, topic: str, partitions: int) -> Iterator[Message]:
    """Every committed record that the topic holds now, partition by partition. Raises ConsumeError.

    Belongs to no group and commits nothing. A record that comes while this reads is not waited for.
    """
    consumer = Consumer(
        {
            **kafka.client_config(),
            "group.id": "headrace-dlq",  # the client wants one; no group is joined
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 10,  # the end is told by an empty answer
            "queued.max.messages.kbytes": 16_384,
        },
        logger=_log,
    )
    try:
        for partition in range(partitions):
            try:
                yield from _partition(consumer, topic, partition)
            except KafkaException as error:
                raise ConsumeError(f"{topic}/{partition}: {error.args[0].str()}") from error
    finally:
        consumer.close()


def wait_for_open_transactions(
    kafka: KafkaSettings, topic: str, partitions: int, pause: Callable[[float], object] = time.sleep
) -> None:
    """Return when everything that the topic holds at the call is committed or aborted.

    Readers of committed records see nothing behind the oldest open transaction, whoever's it is, not even what was
    committed long ago. `pause` takes seconds. Raises ConsumeError when it stays open.
    """
    admin = _admin(kafka)
    held = _ends(admin, topic, partitions, IsolationLevel.READ_UNCOMMITTED)
    deadline = time.monotonic() + _OPEN_TRANSACTION_SECONDS
    told = False
    while True:
        stable = _ends(admin, topic, partitions, IsolationLevel.READ_COMMITTED)
        if all(stable[partition] >= end for partition, end in held.items()):
            return
        if not told:
            _log.warning(
                "%s: waiting for an open transaction; one whose producer was killed ends in some minutes", topic
            )
            told = True
        if time.monotonic() > deadline:
            raise ConsumeError(f"{topic}: a transaction has been open for {_OPEN_TRANSACTION_SECONDS:.0f} s: try again")
        pause(_LOOK_SECONDS)


def _partition(consumer: Consumer, topic: str, partition: int) -> Iterator[Message]:
    low, end = watermarks(consumer, topic, partition, _PATIENCE_SECONDS)
    if low == end:
        return
    # Not from `low` on: retention may take it meanwhile.
    whole = OffsetRange(topic, partition, OFFSET_BEGINNING, end)
    for batch in records_in(consumer, [whole], silent_seconds=_PATIENCE_SECONDS, most=_AT_ONCE):
        yield from batch


def _ends(admin: AdminClient, topic: str, partitions: int, isolation: IsolationLevel) -> dict[int, int]:
    newest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    try:
        return retried(
            lambda: list_offsets(admin, topic, range(partitions), newest, isolation, _PATIENCE_SECONDS),
            _PATIENCE_SECONDS,
        )
    except KafkaException as error:
        raise ConsumeError(f"{topic}: {error.args[0].str()}") from error


def _admin(kafka: KafkaSettings) -> AdminClient:
    return AdminClient({**kafka.client_config(), "log_level": 0})  # its end would log cancelled requests

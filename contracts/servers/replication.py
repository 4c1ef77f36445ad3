"""`wait_for_replication`: until readers see what a leader has taken, and its followers may not have yet."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterable, Mapping

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from contracts.errors import ConsumeError
from contracts.servers.brokers import watermarks
from contracts.settings import KafkaSettings

Place = tuple[str, int]
"""A topic's partition."""

_BROKER_SECONDS = 30.0
_PATIENCE_SECONDS = 90.0
"""Longer than a follower that stands still remains in sync: 30 s, looked at every 15 s (`replica.lag.time.max.ms`)."""
_LOOK_SECONDS = 0.5
_FARTHEST = 1 << 40
"""Offsets beyond a high watermark; nobody replicates that many."""

_REQUESTS_IN_FLIGHT = 5
"""Of an idempotent producer, on each connection; the broker takes one when it has answered the one before."""
_REQUEST_SECONDS = 1.0
"""More than a broker takes to go on with a connection's next request."""

_log = logging.getLogger(__name__)


def wait_for_replication(
    kafka: KafkaSettings, client: Consumer, topics: Iterable[str], pause: Callable[[float], object] = time.sleep
) -> None:
    """Return when all that a producer, now dead, had sent to these topics lies below their ends.

    An end, as clients are told it, is the high watermark: what a leader's followers don't have yet lies beyond it. And a
    request that waits for them holds back those behind it, which the broker has received, but doesn't look at yet.

    Partitions with one replica are not looked at; `client` is asked which they are; `pause` takes seconds. Raises KafkaException, and
    ConsumeError if followers don't catch up.
    """
    places = [
        (topic, partition)
        for topic in topics
        for partition, found in client.list_topics(topic, timeout=_BROKER_SECONDS).topics[topic].partitions.items()
        if len(found.replicas) > 1
    ]
    if not places:
        return
    consumer = Consumer(
        {
            **kafka.client_config(),
            "group.id": "headrace-replication",  # the client wants one; no group is joined
            "enable.auto.commit": False,
            "isolation.level": "read_uncommitted",
            "auto.offset.reset": "error",
        },
        logger=_log,
    )
    try:
        # Where others write too, there is always something on its way: no more often than there are requests in flight.
        for _ in range(_REQUESTS_IN_FLIGHT):
            if not _wait(consumer, places, pause):
                return
            pause(_REQUEST_SECONDS)
    finally:
        consumer.close()


def _wait(consumer: Consumer, places: Iterable[Place], pause: Callable[[float], object]) -> bool:
    """Return when what the leaders have at the call is replicated; whether some of it was not.

    Clients are not told where a log ends, but a fetch beyond that is out of range, and one between the high watermark and
    the end is not. So the end is looked for at growing distances, until an offset is found that it lies below.
    """
    bounds = dict.fromkeys(places, sys.maxsize)
    reach = 1
    had_to_wait = False
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        pause(0)
        ends = {place: watermarks(consumer, *place, _BROKER_SECONDS)[1] for place in bounds}
        # Where there is a bound, the high watermark comes to it while others write, or else to the end itself.
        probes = {place: ends[place] + (reach if bound == sys.maxsize else 1) for place, bound in bounds.items()}
        for place in _out_of_range(consumer, probes):
            bounds[place] = min(bounds[place], probes[place] - 1)
        bounds = {place: bound for place, bound in bounds.items() if ends[place] < bound}
        if not bounds:
            return had_to_wait
        (topic, partition), *_ = bounds
        if not had_to_wait:
            _log.info("%s/%d: waiting for its followers, which lack records that its leader has", topic, partition)
            had_to_wait = True
        if time.monotonic() > deadline:
            raise ConsumeError(
                f"{topic}/{partition}: its followers have lacked records that its leader has for {_PATIENCE_SECONDS:.0f} s: "
                "see to the brokers that hold its replicas, then try again"
            )
        reach = min(2 * reach, _FARTHEST)


def _out_of_range(consumer: Consumer, probes: Mapping[Place, int]) -> set[Place]:
    """Where these offsets lie beyond the end of the leader's log; a place that doesn't answer soon is none of them."""
    consumer.assign([TopicPartition(*place, offset) for place, offset in probes.items()])
    found: set[Place] = set()
    silent = set(probes)
    until = time.monotonic() + _LOOK_SECONDS
    while silent and (message := consumer.poll(max(0.0, until - time.monotonic()))) is not None:
        place = (str(message.topic()), message.partition() or 0)
        error = message.error()
        if error is not None and error.code() == KafkaError._AUTO_OFFSET_RESET:
            found.add(place)
        elif error is not None:
            if not error.retriable() and error.code() != KafkaError._TRANSPORT:
                raise KafkaException(error)
            continue
        silent.discard(place)
    consumer.unassign()
    return found

"""Calls to brokers: `retried` for those whose refusal may pass, `partitions_of`, `topic_ids`, `watermarks`, `watermarks_of`, `ends_of`, `list_offsets`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_fixed

if TYPE_CHECKING:
    # Spark's workers have no use for it.
    from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

_PASSING = {
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.UNSTABLE_OFFSET_COMMIT,
    KafkaError._WAIT_COORD,
}
"""Answers while a leader or coordinator moves, or a topic is new."""

_PAUSE_SECONDS = 0.1
_LEAST_SECONDS = 0.5

T = TypeVar("T")


def retried(ask: Callable[[], T], seconds: float) -> T:
    """What `ask` returns; it is called again while its KafkaException is one that passes, for `seconds` at most."""
    asking = Retrying(
        retry=retry_if_exception(_passes), stop=stop_after_delay(seconds), wait=wait_fixed(_PAUSE_SECONDS), reraise=True
    )
    return asking(ask)


def partitions_of(client: Consumer | AdminClient, topic: str, seconds: float) -> list[int]:
    """The topic's partitions, in order; none if there is no such topic. Raises KafkaException, also where it may not be read."""
    found = client.list_topics(topic, timeout=seconds).topics[topic]
    if found.error is not None and found.error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
        raise KafkaException(found.error)
    return sorted(found.partitions)


def topic_ids(admin: AdminClient, topics: Iterable[str], seconds: float) -> dict[str, str]:
    """By topic its identity, another one once it was deleted and made anew; what does not exist is left out. Raises KafkaException."""

    def describe() -> dict[str, str]:
        found = {}
        for topic, asked in admin.describe_topics(TopicCollection(list(topics)), request_timeout=seconds).items():
            # An error that is caught would keep the client alive, by its frames.
            error = asked.exception()
            if error is None:
                found[topic] = str(asked.result().topic_id)
            elif not isinstance(error, KafkaException) or error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise error
        return found

    return retried(describe, seconds)


def watermarks(consumer: Consumer, topic: str, partition: int, seconds: float) -> tuple[int, int]:
    """The offset of the partition's first record, and the one after its last. Raises KafkaException."""
    at = TopicPartition(topic, partition)
    return retried(lambda: consumer.get_watermark_offsets(at, timeout=seconds), seconds)


def watermarks_of(
    consumer: Consumer, places: Iterable[tuple[str, int]], seconds: float
) -> tuple[dict[tuple[str, int], tuple[int, int]], dict[tuple[str, int], KafkaException]]:
    """By topic and partition what `watermarks` returns, and of the others why nobody told. The first that is away takes so many seconds, each other one half a second."""
    told: dict[tuple[str, int], tuple[int, int]] = {}
    untold: dict[tuple[str, int], KafkaException] = {}
    until = time.monotonic() + seconds
    for place in places:
        try:
            told[place] = watermarks(consumer, *place, max(until - time.monotonic(), _LEAST_SECONDS))
        except KafkaException as error:
            untold[place] = error
    return told, untold


def ends_of(
    consumer: Consumer, topic: str, partitions: Iterable[int], seconds: float
) -> tuple[dict[int, int], dict[int, KafkaException]]:
    """By partition of one topic the offset after its last record, and of the others why nobody told; it takes as long as `watermarks_of`."""
    told, untold = watermarks_of(consumer, ((topic, partition) for partition in partitions), seconds)
    return {p: end for (_, p), (_, end) in told.items()}, {p: error for (_, p), error in untold.items()}


def list_offsets(
    admin: AdminClient,
    topic: str,
    partitions: Iterable[int],
    spec: OffsetSpec,
    isolation: IsolationLevel,
    seconds: float,
) -> dict[int, int]:
    """By partition, the offset that `spec` asks for as readers of this isolation see it; asked once. Raises KafkaException."""
    asked = {TopicPartition(topic, partition): spec for partition in partitions}
    found = admin.list_offsets(asked, isolation_level=isolation, request_timeout=seconds)
    return {each.partition: future.result().offset for each, future in found.items()}


def passes(error: KafkaError) -> bool:
    """Whether a broker, asked again, may answer otherwise."""
    return error.retriable() or error.code() in _PASSING


def _passes(error: BaseException) -> bool:
    return isinstance(error, KafkaException) and passes(error.args[0])

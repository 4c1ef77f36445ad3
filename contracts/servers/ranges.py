"""`OffsetRange`, and `records_in`: the records of ranges, read up to their ends."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from contracts.errors import ConsumeError
from contracts.servers.brokers import passes

_LOOK_SECONDS = 0.2
"""How long it may take until `pause` is called again."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The records of one partition from offset `start` up to, not including, `end`."""

    topic: str
    partition: int
    start: int
    end: int


def records_in(
    consumer: Consumer,
    ranges: Iterable[OffsetRange],
    *,
    silent_seconds: float,
    most: int = 1_000,
    fill_seconds: float = 0.0,
    pause: Callable[[float], object] = time.sleep,
) -> Iterator[list[Message]]:
    """The records in these ranges, at most one of each partition, in batches of at most `most`; those of a partition in order.

    Only records, no errors. Offsets without one are passed over: an end may be that of a transaction's marker, of an aborted or a
    compacted record. An `end` must be one that the consumer's isolation lets it reach: its watermark, or less. `start` may be
    OFFSET_BEGINNING. A record that comes from `end` on is not waited for.

    The consumer needs `enable.partition.eof`, and gets another assignment. Its `auto.offset.reset` says what becomes of a
    range whose first records are gone: with `error` KafkaException (_AUTO_OFFSET_RESET), with `earliest` the rest is read.

    A batch is what has come; `fill_seconds` waits for more of it. `pause` takes seconds, is called several times a second and may raise.
    Raises KafkaException for an error that does not pass, and ConsumeError if nothing comes for `silent_seconds`.
    """
    asked = [each for each in ranges if each.start < each.end]
    left: dict[tuple[str | None, int | None], int] = {(each.topic, each.partition): each.end for each in asked}
    consumer.assign([TopicPartition(each.topic, each.partition, each.start) for each in asked])
    heard_at = time.monotonic()
    while left:
        pause(0)
        first = consumer.poll(_LOOK_SECONDS)
        batch: list[Message] = []
        heard = False
        for message in [] if first is None else [first, *consumer.consume(most - 1, fill_seconds)]:
            place = message.topic(), message.partition()
            error, offset, end = message.error(), message.offset() or 0, left.get(place)
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                _pass_over(error)
            elif end is not None:  # a range that has been read is still fetched
                heard = True
                if error is None and offset < end:
                    batch.append(message)
                if offset + (error is None) >= end:
                    del left[place]
        if batch:
            yield batch
        if heard:
            heard_at = time.monotonic()  # behind `yield`: a batch may be handled for long
        elif time.monotonic() - heard_at > silent_seconds:
            ends = ", ".join(f"{topic}/{partition} up to {end}" for (topic, partition), end in left.items())
            raise ConsumeError(f"nothing came of {ends} in {silent_seconds:.0f} s: see to the brokers, then try again")


def _pass_over(error: KafkaError) -> None:
    if error.fatal() or not (passes(error) or error.code() == KafkaError._TRANSPORT):
        raise KafkaException(error)
    _log.warning("the kafka client goes on after: %s", error.str())

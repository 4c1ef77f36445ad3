"""How far apart in time a query is in the partitions of a topic while it reads a backlog: `drift`.

Of a backlog Spark takes the same share of each partition, and not what happened at the same time. So in a partition that was added later, or that has more
of its records by day than by night, a query is ahead of the others, whose events its watermark then takes for late, though none was when it came.
"""

from __future__ import annotations

import statistics
import threading
from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, datetime, timedelta

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from contracts.records.headers import headers_of, instant_of
from contracts.servers.brokers import passes
from spark.runtime.errors import StopRequested

_SHARES = 32
_AT_ONCE = 5
"""Of so many records that follow each other the median counts: one may lie."""
_AHEAD = timedelta(hours=1)
_TIMEOUT_SECONDS = 10.0


def drift(
    kafka: Mapping[str, str], topic: str, left: Mapping[int, tuple[int, int]], stopping: threading.Event
) -> timedelta:
    """The greatest difference between the times of events in two partitions of which the same share is read. `kafka` are librdkafka properties, with the group;
    `left` are, by partition, the offset of the first record to be read and the one after the last.

    Looks at a few records, by the header `ce_time`, and where there is none by the time of the record. Raises KafkaException, and StopRequested when
    `stopping` is set.
    """
    own = {
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "log_level": 0,
    }
    # Few records from many places: what was asked for at the last one must not be waited for.
    own |= {"enable.partition.eof": True, "fetch.wait.max.ms": 10, "fetch.message.max.bytes": 64 << 10}
    times: dict[int, list[datetime]] = {}
    with closing(Consumer({**kafka, **own})) as reader:
        for partition, (start, end) in left.items():
            for share in range(_SHARES + 1):
                if stopping.is_set():
                    raise StopRequested(f"asked to stop while it looked at the times in {topic}")
                offset = max(start, min(start + (end - start) * share // _SHARES, end - _AT_ONCE))
                if (at := _time_at(reader, TopicPartition(topic, partition, offset))) is not None:
                    times.setdefault(share, []).append(at)
    return max((max(found) - min(found) for found in times.values()), default=timedelta(0))


def _time_at(reader: Consumer, place: TopicPartition) -> datetime | None:
    """None if no record follows."""
    reader.assign([place])
    found: list[datetime] = []
    while len(found) < _AT_ONCE:
        message = reader.poll(_TIMEOUT_SECONDS)
        if message is None:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"{place.topic}/{place.partition} does not answer"))
        error = message.error()
        if error is None:
            found.append(_time_of(message))
        elif error.code() == KafkaError._PARTITION_EOF:
            break
        elif not passes(error):
            raise KafkaException(error)
    return statistics.median_low(found) if found else None


def _time_of(message: Message) -> datetime:
    told, sent_at = instant_of(headers_of(message), "ce_time"), _sent_at(message)
    # One that is ahead of its record is bad.
    return sent_at if told is None else min(told, sent_at + _AHEAD)


def _sent_at(message: Message) -> datetime:
    _, sent_ms = message.timestamp()
    return datetime.fromtimestamp(sent_ms / 1000, UTC)

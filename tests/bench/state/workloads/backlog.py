"""`Backlog`: real events in the order in which they happened, as many as are asked for, in the raw topics.

Which event is late must not depend on who reads it, and how. So the events of each topic are dealt out to its partitions in turn, and no partition is
ahead of another. Of two topics the watermark is that of the slower one, so one that is read far ahead of the other makes no event of either
late. Each lap over the data set is a year further on than the one before, and the last one is that of the data set, so that none is in the
future. One closing event in each partition, three days after all others, ends everything before it: of an interval join Flink gives a record
without a partner half an interval after it is over.
"""

from __future__ import annotations

import io
import itertools
import json
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Any, TypeAlias

import fastavro
from confluent_kafka import Producer

from contracts.definitions.catalog import load_catalog
from contracts.servers.producer_config import PRODUCER_CONFIG
from contracts.servers.registry import Registry
from contracts.settings import Settings
from services.nycflights.tables import read_table
from services.replay.table import Row
from tests.bench.load.records import constant_headers

_LAP = timedelta(days=366)
_CLOSING = timedelta(days=3)
_FLUSH_SECONDS = 120
_SPARE = 4_000
"""Two days' departures and arrivals."""


@dataclass(frozen=True, slots=True)
class Event:
    """What happened to one flight `at` an instant, as a record of `topic`. Of its `fields` the id and the time are those of the data set."""

    topic: str
    flight_id: str
    at: datetime
    fields: Mapping[str, Any]


Load: TypeAlias = Callable[[Row], Iterable[Event]]
"""The events of one row of the table `flights`."""


@dataclass(frozen=True, slots=True)
class Backlog:
    """What was sent: `events` by time, and `closing`, one for each partition."""

    events: Sequence[Event]
    closing: Sequence[Event]

    @property
    def size(self) -> int:
        """How many there are."""
        return len(self.events) + len(self.closing)

    def before(self, instant: datetime) -> int:
        """How many happened before an instant."""
        return bisect_left(self.events, instant, key=attrgetter("at"))


def fill(settings: Settings, load: Load, count: int, copies: int) -> Backlog:
    """Publish so many events of the data set, and the closing ones; the broker then has them all. Each flight is there `copies` times in a lap."""
    producer = Producer(
        settings.kafka.client_config()
        | {
            **PRODUCER_CONFIG,
            "linger.ms": 20,
            "batch.size": 1 << 20,
            "queue.buffering.max.messages": 500_000,
        }
    )
    events = laps(first_events(load, read_table("flights"), -(-count // copies)), count, copies)
    firsts = {event.topic: event for event in reversed(events)}
    with Registry(settings.registry) as registry:
        sending = {topic: _Sending(registry, producer, topic) for topic in firsts}
    for number, event in enumerate(events):
        sending[event.topic].send(event)
        if number % 10_000 == 0:
            producer.poll(0)
    end = events[-1].at + _CLOSING
    closing = [
        replace(first, flight_id=f"closing-{topic}-{partition}", at=end)
        for topic, first in firsts.items()
        for partition in range(sending[topic].partitions)
    ]
    for event in closing:
        sending[event.topic].send(event)
    if producer.flush(_FLUSH_SECONDS):
        raise TimeoutError(f"the broker did not take all of {count} records in {_FLUSH_SECONDS} s")
    return Backlog(events, closing)


def first_events(load: Load, rows: Iterable[Row], count: int) -> list[Event]:
    """The first so many of the year, or all, by time."""
    events: list[Event] = []
    for _, of_day in itertools.groupby(sorted(rows, key=_day), key=_day):
        # Few flights are so late that later days have earlier events.
        if len(events) > count + _SPARE:
            break
        events += itertools.chain.from_iterable(map(load, of_day))
    return sorted(events, key=attrgetter("at"))[:count]


def _day(row: Row) -> tuple[int, int]:
    return int(row["month"] or 0), int(row["day"] or 0)


def laps(events: Sequence[Event], count: int, copies: int) -> list[Event]:
    """So many events by time, of as many laps over these as it takes. Each copy of a flight has an id of its own."""
    needed = -(-count // (len(events) * copies))

    def all_laps() -> Iterator[Event]:
        for lap in range(needed):
            for event, copy in itertools.product(events, range(copies)):
                at = event.at - _LAP * (needed - 1 - lap)
                yield replace(event, flight_id=f"{event.flight_id}-{lap * copies + copy}", at=at)

    return list(itertools.islice(all_laps(), count))


class _Sending:
    """A topic to which events are sent, to its partitions in turn."""

    def __init__(self, registry: Registry, producer: Producer, topic: str) -> None:
        catalog = load_catalog()
        self._producer, self._topic = producer, topic
        self.partitions = len(producer.list_topics(topic, 10).topics[topic].partitions)
        self._prefix = b"\x00" + registry.latest(f"{topic}-value").id.to_bytes(4, "big")
        self._schema = fastavro.parse_schema(json.loads(catalog.schema(topic)))
        contract = catalog.topic(topic)
        self._occurred_at = contract.occurred_at
        self._constant = constant_headers(topic, f"/services/{contract.producers[0]}")
        self._turns = itertools.cycle(range(self.partitions))

    def send(self, event: Event) -> None:
        body = io.BytesIO()
        body.write(self._prefix)
        own = {"flight_id": event.flight_id, self._occurred_at: event.at}
        fastavro.schemaless_writer(body, self._schema, {**event.fields, **own})
        key = event.flight_id.encode()
        headers = [("ce_id", key), ("ce_time", event.at.isoformat().encode()), *self._constant]
        partition = next(self._turns)
        while True:
            try:
                return self._producer.produce(
                    self._topic, key=key, value=body.getvalue(), headers=headers, partition=partition
                )
            except BufferError:
                self._producer.poll(0.1)

"""The events of 2013 in order and in disorder, and where the records of them lie."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from operator import attrgetter, itemgetter
from typing import Any

import fastavro

from contracts.definitions.catalog import Catalog
from contracts.events import FlightArrived
from services.arrivals.event import event_of, timezones
from services.nycflights.tables import read_table
from spark.derivation.derivation import route
from spark.pipeline import Pipeline
from spark.runtime.settings import SparkSettings
from spark.sinks.kafka.transaction import committed_positions, position_reader
from tests.spark.examples import Topics, framed
from tests.spark.pipelines.test_pipelines import a_departure, a_reading, an_arrival
from tests.system.oracle import cancelled_flights, enriched_flights, readings

DEPARTED, CANCELLED = "flights.departed.v1", "flights.cancelled.v1"
ARRIVED, OBSERVED = "flights.arrived.v1", "weather.observed.v1"
_HOUR = timedelta(hours=1)
_END = datetime(2014, 4, 1, tzinfo=UTC)

Event = Mapping[str, Any]
Arrangement = Callable[[datetime, random.Random], list[datetime]]
"""Of an event's time when it is sent, and when again."""


@dataclass(frozen=True, slots=True)
class Sent:
    """An event of `topic`, named as in the contracts, and its record's place there."""

    event: Event
    topic: str
    partition: int
    offset: int


def in_order(at: datetime, chance: random.Random) -> list[datetime]:
    """When it happened."""
    return [at]


def disordered(at: datetime, chance: random.Random) -> list[datetime]:
    """Of a hundred events two come up to two hours later than they happened, one up to two months later, and two are sent again within two hours, some of them several times.
    A batch has the events of about ten days, and is compared with the watermark of the one before the last.
    """
    first = at + chance.uniform(0, chance.choices((0, 2, 24 * 60), (97, 2, 1))[0]) * _HOUR
    again = chance.choices((0, 1, 2, 3), (980, 14, 4, 2))[0]
    return [first, *[first + chance.uniform(0, 2) * _HOUR for _ in range(again)]]


ARRANGEMENTS = [in_order, disordered]


def all_flights() -> list[Event]:
    """In the order in which they left."""
    return sorted(enriched_flights().values(), key=itemgetter("departed_at", "flight_id"))


def all_cancellations() -> list[Event]:
    """In the order in which they were to leave."""
    return sorted(cancelled_flights(), key=itemgetter("scheduled_departure_at", "flight_id"))


def _a_cancellation(at: datetime) -> Event:
    return cancelled_flights()[0] | {"flight_id": "last", "scheduled_departure_at": at}


def all_arrivals() -> list[Event]:
    """In the order in which they came to their scheduled destinations."""
    zones = timezones(read_table("airports"))
    found = [event for row in read_table("flights") if isinstance(event := event_of(row, zones), FlightArrived)]
    return [event.model_dump() for event in sorted(found, key=attrgetter("arrived_at", "flight_id"))]


def year_of(name: str, catalog: Catalog) -> tuple[Sequence[Event], str]:
    """All events of a topic, named as in the contracts, and the field with their time. The last is so much later than all others that these are over."""
    found: dict[str, Callable[[], tuple[Sequence[Event], Event]]] = {
        DEPARTED: lambda: (all_flights(), a_departure(flight_id="last", departed_at=_END)),
        ARRIVED: lambda: (all_arrivals(), an_arrival(flight_id="last", arrived_at=_END + _HOUR)),
        CANCELLED: lambda: (all_cancellations(), _a_cancellation(_END)),
        OBSERVED: lambda: (readings(), a_reading(observed_at=_END)),
    }
    events, last = found[name]()
    return [*events, last], catalog.topic(name).occurred_at


def half_months(
    events: Sequence[Event], occurred_at: str, arranged: Arrangement, chance: random.Random
) -> list[list[Event]]:
    """Those that are sent in each half of a month of 2013; the last has all that are sent later, too."""
    *others, last = events
    moments = [(moment, event) for event in others for moment in arranged(event[occurred_at], chance)]
    found: list[list[Event]] = [[] for _ in range(24)]
    for moment, event in sorted(moments, key=itemgetter(0)):
        number = 2 * (moment.month - 1) + (moment.day > 15) if moment.year == 2013 else 23
        found[number].append(event)
    found[-1].append(last)
    return found


class Sender:
    """Sends events in turn to the two partitions of a topic, what its schema has of each."""

    def __init__(self, topics: Topics, name: str) -> None:
        """`name` is that in the contracts."""
        self._topics, self._name = topics, name
        told = json.loads(topics.catalog.schema(name))
        self._schema, self._fields = fastavro.parse_schema(told), [field["name"] for field in told["fields"]]
        self.sent: list[Sent] = []

    def send(self, events: Sequence[Event]) -> None:
        """Behind those that were sent before."""
        begin = len(self.sent)
        self.sent += [
            Sent(event, self._name, number % 2, number // 2) for number, event in enumerate(events, start=begin)
        ]
        for partition in (0, 1):
            of_partition = [self._value(each.event) for each in self.sent[begin:] if each.partition == partition]
            for chunk in _chunks(of_partition):
                self._topics.send(*chunk, partition=partition, topic=self._name)

    def _value(self, event: Event) -> bytes:
        body = io.BytesIO()
        fastavro.schemaless_writer(body, self._schema, {field: event[field] for field in self._fields})
        return framed(self._topics.schema_ids[self._name], body.getvalue())


def taken_in(pipeline: Pipeline, settings: SparkSettings, topics: Topics) -> int:
    """How many records the pipeline's group has, of all that it reads."""
    found = 0
    for source in pipeline.sources:
        made = route(pipeline, topics.catalog, source)
        with closing(position_reader(settings.kafka.client_config(), made)) as reader:
            found += sum(at.offset for at in committed_positions(reader, made.source, [0, 1]).values())
    return found


def _chunks(values: Sequence[bytes]) -> Iterator[tuple[bytes, ...]]:
    left = iter(values)
    while chunk := tuple(islice(left, 50_000)):
        yield chunk

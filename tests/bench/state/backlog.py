"""`Backlog`: real departures in the order in which they left, as many as are asked for, in the raw topic.

Which event is late must not depend on who reads it, and how. So the departures are dealt out to the partitions in turn, and no partition is
ahead of another. Each lap over the data set is a year further on than the one before, and the last one is that of the data set, so
that none is in the future. One closing departure in each partition, a day after all others, ends every window before it.
"""

from __future__ import annotations

import io
import itertools
import json
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import fastavro
from confluent_kafka import Producer

from contracts.definitions.catalog import load_catalog
from contracts.events import FlightDeparted
from contracts.servers.producer_config import PRODUCER_CONFIG
from contracts.servers.registry import Registry
from contracts.settings import Settings
from services.departures.event import event_of
from services.nycflights.tables import read_table
from services.replay.table import Row
from tests.bench.load.records import RAW, constant_headers

_LAP = timedelta(days=366)
_CLOSING = timedelta(days=1)
_FLUSH_SECONDS = 120
_SPARE = 2_000
"""Two days' flights."""


@dataclass(frozen=True, slots=True)
class Departure:
    """What a window is made of."""

    origin: str
    departed_at: datetime
    delay_minutes: int


@dataclass(frozen=True, slots=True)
class Backlog:
    """What was sent: `departures` by time, and `closing`, one for each partition."""

    departures: Sequence[Departure]
    closing: Sequence[Departure]

    @property
    def events(self) -> int:
        """How many there are."""
        return len(self.departures) + len(self.closing)

    def before(self, instant: datetime) -> int:
        """How many left before an instant."""
        return bisect_left(self.departures, instant, key=lambda each: each.departed_at)


def fill(settings: Settings, events: int, copies: int) -> Backlog:
    """Publish so many departures, each of the data set `copies` times in a lap, and the closing ones; the broker then has them all."""
    with Registry(settings.registry) as registry:
        prefix = b"\x00" + registry.latest(f"{RAW}-value").id.to_bytes(4, "big")
    schema = fastavro.parse_schema(json.loads(load_catalog().schema(RAW)))
    producer = Producer(
        settings.kafka.client_config()
        | {
            **PRODUCER_CONFIG,
            "linger.ms": 20,
            "batch.size": 1 << 20,
            "queue.buffering.max.messages": 500_000,
        }
    )
    partitions = len(producer.list_topics(RAW, 10).topics[RAW].partitions)
    constant = constant_headers(RAW, "/services/departures")
    fields = [event.model_dump() for event in _in_order(-(-events // copies))]

    def send(of: dict[str, Any], at: datetime, partition: int) -> Departure:
        body = io.BytesIO()
        body.write(prefix)
        fastavro.schemaless_writer(body, schema, of | {"departed_at": at})
        key = of["flight_id"].encode()
        headers = [("ce_id", key), ("ce_time", at.isoformat().encode()), *constant]
        while True:
            try:
                producer.produce(RAW, key=key, value=body.getvalue(), headers=headers, partition=partition)
                return Departure(of["origin"], at, of["departure_delay_minutes"])
            except BufferError:
                producer.poll(0.1)

    sent = []
    for number, (of, shift) in enumerate(itertools.islice(_laps(fields, events, copies), events)):
        sent.append(send(of, of["departed_at"] - shift, number % partitions))
        if number % 10_000 == 0:
            producer.poll(0)
    last = sent[-1].departed_at + _CLOSING
    closing = [send(fields[0], last, partition) for partition in range(partitions)]
    if producer.flush(_FLUSH_SECONDS):
        raise TimeoutError(f"the broker did not take all of {events} records in {_FLUSH_SECONDS} s")
    return Backlog(sent, closing)


def _in_order(count: int) -> list[FlightDeparted]:
    """The first so many of the year, or all, by the time at which they left."""
    events: list[FlightDeparted] = []
    of_day = itertools.groupby(sorted(read_table("flights"), key=_day), key=_day)
    for _, rows in of_day:
        # Few leave so much later than they should that later days have earlier ones.
        if len(events) > count + _SPARE:
            break
        found = (event_of(row) for row in rows)
        events += [each for each in found if isinstance(each, FlightDeparted)]
    return sorted(events, key=lambda each: each.departed_at)[:count]


def _day(row: Row) -> tuple[int, int]:
    return int(row["month"] or 0), int(row["day"] or 0)


def _laps(fields: Sequence[dict[str, Any]], events: int, copies: int) -> Iterator[tuple[dict[str, Any], timedelta]]:
    """Each record with the time that it is to be earlier."""
    laps = -(-events // (len(fields) * copies))
    for lap in range(laps):
        for of in fields:
            yield from itertools.repeat((of, _LAP * (laps - 1 - lap)), copies)

"""The load: real departures at a steady rate, with an external ledger, and some of their arrivals. A process of its own, so that it can be killed.

`python -m tests.faults.stage.load LEDGER --rate 200 --since 1790000000`: for the stack that the environment's `HEADRACE_` variables
name, until SIGTERM. An event's id is its flight's with the ledger's name, a number and the time of departure, so each event is sent once by
intent. The time is none of the data set's: it runs fast, so that windows of time begin and end during a campaign, and some events are late.
"""

from __future__ import annotations

import argparse
import itertools
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from contracts import topics
from contracts.definitions.catalog import load_catalog
from contracts.delivery import Delivered
from contracts.errors import DeliveryError
from contracts.events import FlightArrived, FlightDeparted
from contracts.publisher import Publisher
from contracts.servers.registry import Registry
from contracts.settings import Settings, read_settings
from services.arrivals.event import event_of as arrival_of
from services.arrivals.event import timezones
from services.departures.event import event_of
from services.nycflights.tables import read_table
from tests.faults.stage.ledger import LedgerWriter

RAW, ENRICHED = topics.FLIGHTS_DEPARTED.name, topics.FLIGHTS_DEPARTED_ENRICHED.name
TABLE = "flights_departed_enriched"
PIPELINE = "departures_enriched"
AGGREGATE = "delays_by_origin"
AGGREGATES = (AGGREGATE, "final_delays_by_origin")
"""Those that count the raw records; the second writes a group when its window is over."""
FILTER = "long_haul_departures"
JOIN, DISTINCT, SEQUENCE, RANKING = "flight_legs", "departures_once", "chronic_delays", "worst_routes"
"""Those with a state whose records the audit alone compares."""
MORE_PIPELINES = (FILTER, "airports_served", *AGGREGATES, JOIN, DISTINCT, SEQUENCE, RANKING)
"""Those that run beside it, where one process may run several."""
COMPUTES = {
    "airports_served": lambda event: max(len(name) + len(event[name].encode()) for name in ("origin", "destination"))
}
"""By pipeline, how many bytes the texts have that it computes of an event."""
ODD_SHARES = {RAW: 0.5, "flights.cancelled.v1": 0.2, "weather.observed.v1": 0.2, "flights.arrived.v1": 0.1}
"""How many of the odd records go to each topic where producers send."""
CLAIMED = (RAW, ENRICHED, "weather.observed.v1")
"""Topics whose records the odd ones claim to come of."""

FLIGHTS = 20_000
"""How many rows of the data set are sent, again and again: some three weeks."""

SPEED = 60
_AHEAD = timedelta(days=10)
"""So long before the present the time of the events begins, and runs `SPEED` times as fast until it has reached it."""
_ARRIVING_ONES = 20
"""One of so many departures arrives, a minute later. A flight is sent again within the time for which it is remembered, so each arrival has several."""
_FREQUENT_ONES, _FREQUENT = 5, 10
"""One of so many departures is of one of so few flights, which never arrive: records of one key follow each other closely, so it is seen if they
change places.
"""
_LATE_ONES, _LATE_BY = 50, timedelta(hours=4)
"""One of so many events is late by this: more than aggregates wait."""
_WINDOW_SECONDS = 900
_STEP_SECONDS = 0.02
_EVENT_ID = re.compile(r"[^#]+#load\d+-\d+@(\d+)")


def flight_of(event_id: str) -> str:
    """The flight that an event is about."""
    return event_id.split("#", 1)[0]


def departed_at(event_id: str) -> datetime:
    """When the flight of an event of a ledger departed."""
    found = _EVENT_ID.fullmatch(event_id)
    assert found is not None, event_id
    return datetime.fromtimestamp(int(found[1]), UTC)


def group_of(origin: str, departed: datetime) -> str:
    """The key of the group to which a departure belongs."""
    seconds = int(departed.timestamp()) // _WINDOW_SECONDS * _WINDOW_SECONDS
    return f"{origin}/{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%SZ}"


def of_a_ledger(event_id: str) -> bool:
    """Whether a load has sent it."""
    return _EVENT_ID.fullmatch(event_id) is not None


def events() -> Iterator[tuple[FlightDeparted, FlightArrived | None]]:
    """Every departed flight among the first rows, with its arrival."""
    zones = timezones(read_table("airports"))
    for row in itertools.islice(read_table("flights"), FLIGHTS):
        departed, arrived = event_of(row), arrival_of(row, zones)
        if isinstance(departed, FlightDeparted):
            yield departed, arrived if isinstance(arrived, FlightArrived) else None


def send(settings: Settings, ledger: Path, rate: float, since: datetime, stopping: threading.Event) -> None:
    """Publish at `rate` events per second until `stopping`; the time of events began to run at `since`. What a full queue has held up is sent as soon as it goes on."""
    written, name = LedgerWriter(ledger), ledger.stem
    flights = list(events())
    frequent = itertools.cycle([(event, None) for event, _ in flights[:_FREQUENT]])
    others = itertools.cycle(flights[_FREQUENT:])

    def delivered(event_id: str, outcome: Delivered | DeliveryError) -> None:
        if isinstance(outcome, Delivered):
            written.acknowledged(event_id, outcome.coordinate)

    with (
        Registry(settings.registry) as registry,
        Publisher(
            settings, catalog=load_catalog(), registry=registry, service="departures", topics=[topics.FLIGHTS_DEPARTED]
        ) as publisher,
        Publisher(
            settings, catalog=load_catalog(), registry=registry, service="arrivals", topics=[topics.FLIGHTS_ARRIVED]
        ) as arrivals,
    ):
        began, sent = time.monotonic(), 0
        while not stopping.wait(_STEP_SECONDS):
            while sent < (time.monotonic() - began) * rate and not stopping.is_set():
                event, arrival = next(frequent if sent % _FREQUENT_ONES == 0 else others)
                now = datetime.now(UTC)
                departed = min(since - _AHEAD + SPEED * (now - since), now)
                if sent % _LATE_ONES == _LATE_ONES - 1:
                    departed -= _LATE_BY
                event = event.model_copy(update={"departed_at": departed.replace(microsecond=0)})
                event_id = f"{event.flight_id}#{name}-{sent}@{int(departed.timestamp())}"
                written.attempted(event_id)
                publisher.publish(
                    topics.FLIGHTS_DEPARTED, event, event_id=event_id, on_delivery=partial(delivered, event_id)
                )
                if arrival is not None and sent % _ARRIVING_ONES == 1:
                    arrival = arrival.model_copy(update={"arrived_at": event.departed_at + timedelta(minutes=1)})
                    arrivals.publish(topics.FLIGHTS_ARRIVED, arrival, event_id=f"{event_id}/arrived")
                sent += 1


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.stage.load", description=__doc__)
    parser.add_argument("ledger", type=Path)
    parser.add_argument("--rate", type=float, required=True)
    parser.add_argument(
        "--since", type=float, required=True, help="seconds since 1970 at which the time of events began to run"
    )
    arguments = parser.parse_args()
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    since = datetime.fromtimestamp(arguments.since, UTC)
    send(read_settings(Settings), arguments.ledger, arguments.rate, since, stopping)
    return 0


if __name__ == "__main__":
    sys.exit(main())

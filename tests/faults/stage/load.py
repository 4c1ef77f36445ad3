"""The load: real departures at a steady rate, with an external ledger, and beside them some arrivals, cancelled flights, readings of the weather and
gates. A process of its own, so that it can be killed.

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
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from contracts import topics
from contracts.definitions.catalog import load_catalog
from contracts.delivery import Delivered
from contracts.errors import DeliveryError
from contracts.handle import Topic
from contracts.publisher import Publisher
from contracts.servers.registry import Registry
from contracts.settings import Settings, read_settings
from tests.faults.stage.beside import Beside, events
from tests.faults.stage.ledger import LedgerWriter

RAW, ENRICHED = topics.FLIGHTS_DEPARTED.name, topics.FLIGHTS_DEPARTED_ENRICHED.name
TABLE = "flights_departed_enriched"
ODD_SHARES = {RAW: 0.5, "flights.cancelled.v1": 0.2, "weather.observed.v1": 0.2, "flights.arrived.v1": 0.1}
"""How many of the odd records go to each topic where producers send."""
CLAIMED = (RAW, ENRICHED, "weather.observed.v1")
"""Topics whose records the odd ones claim to come of."""

SPEED = 60
_AHEAD = timedelta(days=10)
"""So long before the present the time of the events begins, and runs `SPEED` times as fast until it has reached it."""
_FREQUENT_ONES, _FREQUENT = 5, 10
"""One of so many departures is of one of so few flights, which never arrive: records of one key follow each other closely, so it is seen if they
change places.
"""
_LATE_ONES, _LATE_BY = 50, timedelta(hours=4)
"""One of so many events is late by this: more than aggregates wait."""
_SERVICES: Mapping[str, Sequence[Topic[Any]]] = {
    "departures": (topics.FLIGHTS_DEPARTED, topics.FLIGHTS_CANCELLED, topics.GATES_ANNOUNCED),
    "arrivals": (topics.FLIGHTS_ARRIVED,),
    "weather": (topics.WEATHER_OBSERVED,),
}
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


def send(settings: Settings, ledger: Path, rate: float, since: datetime, stopping: threading.Event) -> None:
    """Publish at `rate` events per second until `stopping`; the time of events began to run at `since`. What a full queue has held up is sent as soon as it goes on."""
    written, name, beside = LedgerWriter(ledger), ledger.stem, Beside()
    flights = list(events())
    frequent, others = itertools.cycle(flights[:_FREQUENT]), itertools.cycle(flights[_FREQUENT:])

    def delivered(event_id: str, outcome: Delivered | DeliveryError) -> None:
        if isinstance(outcome, Delivered):
            written.acknowledged(event_id, outcome.coordinate)

    with ExitStack() as exits:
        registry = exits.enter_context(Registry(settings.registry))
        publishers: dict[str, Publisher] = {}
        for service, some in _SERVICES.items():
            publisher = Publisher(settings, catalog=load_catalog(), registry=registry, service=service, topics=some)
            publishers |= dict.fromkeys((topic.name for topic in some), exits.enter_context(publisher))
        began, sent = time.monotonic(), 0
        while not stopping.wait(_STEP_SECONDS):
            while sent < (time.monotonic() - began) * rate and not stopping.is_set():
                event = next(frequent if sent % _FREQUENT_ONES == 0 else others)
                now = datetime.now(UTC)
                departed = min(since - _AHEAD + SPEED * (now - since), now)
                if sent % _LATE_ONES == _LATE_ONES - 1:
                    departed -= _LATE_BY
                event = event.model_copy(update={"departed_at": departed.replace(microsecond=0)})
                event_id = f"{event.flight_id}#{name}-{sent}@{int(departed.timestamp())}"
                written.attempted(event_id)
                publishers[RAW].publish(
                    topics.FLIGHTS_DEPARTED, event, event_id=event_id, on_delivery=partial(delivered, event_id)
                )
                for topic, other, other_id in beside.of(sent, event_id, event):
                    publishers[topic.name].publish(topic, other, event_id=other_id)
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

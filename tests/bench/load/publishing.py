"""Publishes real departures through one `Publisher`, as a service would, as fast as it goes.

`python -m tests.bench.load.publishing 1000000`: the events of every departed flight again and again, made before the first is
published, for the stack that the environment's `HEADRACE_` variables name.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator

from contracts import topics
from contracts.definitions.catalog import load_catalog
from contracts.events import FlightDeparted
from contracts.publisher import Publisher
from contracts.servers.registry import Registry
from contracts.settings import Settings, read_settings
from services.departures.event import event_of
from services.nycflights.tables import read_table

TOPIC = topics.FLIGHTS_DEPARTED
SERVICE = "departures"


def publish(settings: Settings, count: int) -> None:
    """Publish `count` events; returns when the brokers have acknowledged each."""
    events = list(itertools.islice(_departures(), count))
    with (
        Registry(settings.registry) as registry,
        Publisher(settings, catalog=load_catalog(), registry=registry, service=SERVICE, topics=[TOPIC]) as publisher,
    ):
        for event in itertools.islice(itertools.cycle(events), count):
            publisher.publish(TOPIC, event, event_id=event.flight_id)
        publisher.flush(120)


def _departures() -> Iterator[FlightDeparted]:
    events = map(event_of, read_table("flights"))
    return (event for event in events if isinstance(event, FlightDeparted))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int)
    publish(read_settings(Settings), parser.parse_args().count)

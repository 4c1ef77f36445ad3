"""The raw departures of the workloads that need no other events."""

from __future__ import annotations

from collections.abc import Iterator

from contracts.events import FlightDeparted
from services.departures.event import event_of
from services.replay.table import Row
from tests.bench.load.records import RAW
from tests.bench.state.workloads.backlog import Event


def departures(row: Row) -> Iterator[Event]:
    """Of a flight that left."""
    event = event_of(row)
    if isinstance(event, FlightDeparted):
        yield Event(RAW, event.flight_id, event.departed_at, event.model_dump())

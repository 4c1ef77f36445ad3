"""Events of flights that are made up, for the tests of the oracles."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from contracts import topics
from tests.bench.state.workloads.backlog import Event

BEGIN = datetime(2013, 1, 1, 10, 15, tzinfo=UTC)


def a_departure(
    minutes: float = 0, delay: int = 0, origin: str = "EWR", flight_id: str = "UA1", tail_number: str | None = "N14228"
) -> Event:
    """So many minutes after `BEGIN`."""
    fields = {
        "carrier": "UA",
        "origin": origin,
        "destination": "IAH",
        "tail_number": tail_number,
        "departure_delay_minutes": delay,
    }
    return Event(topics.FLIGHTS_DEPARTED.name, flight_id, BEGIN + timedelta(minutes=minutes), fields)


def an_arrival(minutes: float = 0, delay: int = 0, flight_id: str = "UA1") -> Event:
    """So many minutes after `BEGIN`."""
    fields = {"arrival_delay_minutes": delay}
    return Event(topics.FLIGHTS_ARRIVED.name, flight_id, BEGIN + timedelta(minutes=minutes), fields)

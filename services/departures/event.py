"""A row of the table `flights` as the event that it was at its origin."""

from __future__ import annotations

from datetime import timedelta

from contracts.events import FlightCancelled, FlightDeparted, GateAnnounced
from services.departures.gate import gate_of
from services.nycflights.flight import scheduled_flight
from services.replay.table import Row, required
from services.replay.unfit import Unfit


def event_of(row: Row) -> FlightDeparted | FlightCancelled | Unfit:
    """Departed when the row has a departure time, cancelled when it has none."""
    try:
        flight = scheduled_flight(row)
        if row["dep_time"] is None:
            return FlightCancelled(**flight)
        delay_minutes = int(required(row, "dep_delay"))
        return FlightDeparted(
            **flight,
            departed_at=flight["scheduled_departure_at"] + timedelta(minutes=delay_minutes),
            departure_delay_minutes=delay_minutes,
        )
    except ValueError as error:
        return Unfit("Unreadable", str(error))


def events_of(row: Row) -> tuple[GateAnnounced | FlightDeparted | FlightCancelled | Unfit, ...]:
    """What the row was at its origin, and before that the announcement of its gate; of a row that can't be read there is none."""
    flight = event_of(row)
    return (flight,) if isinstance(flight, Unfit) else (gate_of(row), flight)

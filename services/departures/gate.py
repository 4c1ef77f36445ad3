"""The gate of a flight, as it was announced before it left: made up by a rule, for the data set has none."""

from __future__ import annotations

from datetime import timedelta

from contracts.events import GateAnnounced
from services.nycflights.flight import scheduled_flight
from services.replay.table import Row

BEFORE = timedelta(hours=2)
"""So long before its scheduled departure the gate of each flight is announced, cancelled ones included."""
PIERS = {"EWR": "ABC", "JFK": "TUVW", "LGA": "MNP"}
"""A letter for each pier. Another origin has one pier, X."""
GATES = 30
"""On each pier, numbered from 1."""


def gate_of(row: Row) -> GateAnnounced:
    """The announcement for the flight of a row. Raises ValueError where that can't be read.

    The rule: a line keeps its pier, and moves on by seven gates from day to day.
    """
    flight = scheduled_flight(row)
    piers, number, day = PIERS.get(flight["origin"], "X"), flight["flight_number"], flight["flight_date"].toordinal()
    return GateAnnounced(
        line_id=f"{flight['carrier']}{number}-{flight['origin']}",
        flight_id=flight["flight_id"],
        carrier=flight["carrier"],
        flight_number=number,
        origin=flight["origin"],
        gate=f"{piers[number % len(piers)]}{(number + 7 * day) % GATES + 1}",
        scheduled_departure_at=flight["scheduled_departure_at"],
        announced_at=flight["scheduled_departure_at"] - BEFORE,
    )

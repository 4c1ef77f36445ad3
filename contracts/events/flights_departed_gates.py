# ruff: noqa
"""Generated from the contracts by `headrace contracts generate`; do not edit."""

from __future__ import annotations

from datetime import date

from pydantic import AwareDatetime, BaseModel, ConfigDict


class FlightDepartedGate(BaseModel):
    """A departed flight with its gate."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
    )
    flight_id: str
    """Identity of one scheduled flight: carrier and flight number, origin, scheduled departure in UTC, e.g. UA1545-EWR-20130101T1015Z."""
    carrier: str
    """Two-character IATA code of the operating airline; key of the dimension gates, with flight number and origin."""
    flight_number: int
    """Flight number of the carrier, without unit."""
    tail_number: str | None = None
    """Registration of the aircraft. Null when it was not recorded."""
    origin: str
    """FAA code of the departure airport."""
    destination: str
    """FAA code of the scheduled arrival airport."""
    flight_date: date
    """Calendar date of the scheduled departure, local to the origin."""
    scheduled_departure_at: AwareDatetime
    """Scheduled departure, instant in UTC, milliseconds since the epoch."""
    departed_at: AwareDatetime
    """Actual departure from the gate, instant in UTC, milliseconds since the epoch."""
    departure_delay_minutes: int
    """Actual minus scheduled departure, in minutes; negative when early."""
    distance_miles: int
    """Great-circle distance between origin and destination, in statute miles."""
    gate: str | None = None
    """Pier and number of the gate that was last announced for its line, from gates."""
    gate_announced_for: str | None = None
    """The flight_id for which that gate was announced, from gates. Another one than this flight's where its own announcement was not in force yet, or the next flight's was already."""
    unmatched: list[str]
    """The lookups that had no row: gates. Empty when it matched."""
    dimension_versions: dict[str, int]
    """Delta version of each dimension table that was joined, by dimension name; a count of commits."""
    revision: int | None = 0
    """0 for the first enrichment of a raw record, one more for each repair of the same record; a count."""

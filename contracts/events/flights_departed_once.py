# ruff: noqa
"""Generated from the contracts by `headrace contracts generate`; do not edit."""

from __future__ import annotations

from datetime import date

from pydantic import AwareDatetime, BaseModel, ConfigDict


class FlightDepartedOnce(BaseModel):
    """A flight left its gate; told once, though its departure may have been sent again."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
    )
    flight_id: str
    """Identity of one scheduled flight: carrier and flight number, origin, scheduled departure in UTC, e.g. UA1545-EWR-20130101T1015Z."""
    carrier: str
    """Two-character IATA code of the operating airline; key of the dimension airlines."""
    flight_number: int
    """Flight number of the carrier, without unit."""
    tail_number: str | None = None
    """Registration of the aircraft; key of the dimension planes. Null when it was not recorded."""
    origin: str
    """FAA code of the departure airport; key of the dimension airports."""
    destination: str
    """FAA code of the scheduled arrival airport; key of the dimension airports."""
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

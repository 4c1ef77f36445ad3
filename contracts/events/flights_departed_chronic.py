# ruff: noqa
"""Generated from the contracts by `headrace contracts generate`; do not edit."""

from __future__ import annotations

from pydantic import AwareDatetime, BaseModel, ConfigDict


class FlightDepartedChronic(BaseModel):
    """The third leg in a row that an aircraft has left late with."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
    )
    flight_id: str
    """Identity of one scheduled flight: carrier and flight number, origin, scheduled departure in UTC, e.g. UA1545-EWR-20130101T1015Z."""
    tail_number: str
    """Registration of the aircraft; key of the dimension planes."""
    carrier: str
    """Two-character IATA code of the operating airline; key of the dimension airlines."""
    origin: str
    """FAA code of the departure airport; key of the dimension airports."""
    destination: str
    """FAA code of the scheduled arrival airport; key of the dimension airports."""
    departed_at: AwareDatetime
    """Actual departure from the gate, instant in UTC, milliseconds since the epoch."""
    departure_delay_minutes: int
    """Actual minus scheduled departure, in minutes; negative when early."""
    late_in_a_row: int
    """Legs that the aircraft has left late with, by more than 15 minutes, one after the other, this one included, without unit."""
    delay_mean_minutes: float
    """Mean delay of the aircraft's legs up to this one, in minutes; each leg counts for a quarter, and those before it for the rest."""

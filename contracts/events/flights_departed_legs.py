# ruff: noqa
"""Generated from the contracts by `headrace contracts generate`; do not edit."""

from __future__ import annotations

from pydantic import AwareDatetime, BaseModel, ConfigDict


class FlightLeg(BaseModel):
    """A flight from its gate to that of its destination, as far as it came."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
    )
    flight_id: str
    """Identity of one scheduled flight: carrier and flight number, origin, scheduled departure in UTC, e.g. UA1545-EWR-20130101T1015Z."""
    carrier: str
    """Two-character IATA code of the operating airline; key of the dimension airlines."""
    origin: str
    """FAA code of the departure airport; key of the dimension airports."""
    destination: str
    """FAA code of the scheduled arrival airport; key of the dimension airports."""
    departed_at: AwareDatetime
    """Actual departure from the gate, instant in UTC, milliseconds since the epoch."""
    arrived_at: AwareDatetime | None = None
    """Actual arrival at the gate, instant in UTC, milliseconds since the epoch. Null when it did not within twenty hours of departed_at."""
    departure_delay_minutes: int
    """Actual minus scheduled departure, in minutes; negative when early."""
    arrival_delay_minutes: int | None = None
    """Actual minus scheduled arrival, in minutes; negative when early. Null without an arrival."""
    gate_to_gate_minutes: float | None = None
    """From departed_at to arrived_at, in minutes. Null without an arrival."""

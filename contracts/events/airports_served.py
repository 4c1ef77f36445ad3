# ruff: noqa
"""Generated from the contracts by `headrace contracts generate`; do not edit."""

from __future__ import annotations

from pydantic import AwareDatetime, BaseModel, ConfigDict


class AirportServed(BaseModel):
    """A flight that has arrived served an airport."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
    )
    flight_id: str
    """Identity of one scheduled flight: carrier and flight number, origin, scheduled departure in UTC, e.g. UA1545-EWR-20130101T1015Z."""
    carrier: str
    """Two-character IATA code of the operating airline; key of the dimension airlines."""
    arrived_at: AwareDatetime
    """Actual arrival at the gate, instant in UTC, milliseconds since the epoch."""
    arrival_delay_minutes: int
    """Actual minus scheduled arrival, in minutes; negative when early."""
    distance_miles: int
    """Great-circle distance between origin and destination, in statute miles."""
    served_as: str
    """What the airport was to the flight: origin or destination."""
    airport: str
    """FAA code of the airport; key of the dimension airports."""

# ruff: noqa
"""Generated from the contracts by `headrace contracts generate`; do not edit."""

from __future__ import annotations

from pydantic import AwareDatetime, BaseModel, ConfigDict


class GateAnnounced(BaseModel):
    """The gate of a flight was announced."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
    )
    line_id: str
    """Identity of a line, whose flights leave day after day: carrier and flight number, origin, e.g. UA1545-EWR."""
    flight_id: str
    """Identity of one scheduled flight: carrier and flight number, origin, scheduled departure in UTC, e.g. UA1545-EWR-20130101T1015Z."""
    carrier: str
    """Two-character IATA code of the operating airline."""
    flight_number: int
    """Flight number of the carrier, without unit."""
    origin: str
    """FAA code of the departure airport."""
    gate: str
    """Pier and number of the gate, e.g. B7."""
    scheduled_departure_at: AwareDatetime
    """Scheduled departure, instant in UTC, milliseconds since the epoch."""
    announced_at: AwareDatetime
    """When it was announced, instant in UTC, milliseconds since the epoch."""

# ruff: noqa
"""Generated from the contracts by `headrace contracts generate`; do not edit."""

from __future__ import annotations

from pydantic import AwareDatetime, BaseModel, ConfigDict


class FlightDepartedPunctuality(BaseModel):
    """How many flights of an airport left in a window of time, how late, and how many were cancelled."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
    )
    window_id: str
    """Identity of the window: origin and begin, e.g. EWR/2013-01-01T10:15:00Z."""
    origin: str
    """FAA code of the departure airport."""
    begins_at: AwareDatetime
    """Begin of the window of departed_at, and of scheduled_departure_at of what was cancelled, inclusive, instant in UTC, milliseconds since the epoch."""
    ends_at: AwareDatetime
    """End of the window, exclusive, instant in UTC, milliseconds since the epoch."""
    departures: int
    """Flights that left the origin in the window, without unit."""
    cancellations: int
    """Flights that were to leave the origin in the window, and were cancelled, without unit."""
    cancelled_share: float
    """Cancellations in departures and cancellations together, from 0 to 1, without unit."""
    delay_mean_minutes: float | None = None
    """Mean of their departure delays, in minutes; negative when early. Null if no flight departed."""
    delay_p95_minutes: float | None = None
    """95th percentile of their departure delays, in minutes, exact, interpolated between the two nearest. Null if no flight departed."""
    is_final: bool
    """Whether nothing can change the window any more; filled in by the platform."""

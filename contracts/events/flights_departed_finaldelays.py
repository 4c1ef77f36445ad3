# ruff: noqa
"""Generated from the contracts by `headrace contracts generate`; do not edit."""

from __future__ import annotations

from pydantic import AwareDatetime, BaseModel, ConfigDict


class FlightDepartedFinalDelays(BaseModel):
    """How late the flights were that left an airport in a window of time that is over."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
    )
    window_id: str
    """Identity of the window: origin and begin, e.g. EWR/2013-01-01T10:15:00Z."""
    origin: str
    """FAA code of the departure airport."""
    begins_at: AwareDatetime
    """Begin of the window of departed_at, inclusive, instant in UTC, milliseconds since the epoch."""
    ends_at: AwareDatetime
    """End of the window, exclusive, instant in UTC, milliseconds since the epoch."""
    departures: int
    """Flights that left the origin in the window, without unit."""
    delay_mean_minutes: float
    """Mean of their departure delays, in minutes; negative when early."""
    delay_p95_minutes: float
    """95th percentile of their departure delays, in minutes, exact, interpolated between the two nearest."""
    is_final: bool
    """Whether nothing can change the window any more; filled in by the platform."""

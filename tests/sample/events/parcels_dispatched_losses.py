# ruff: noqa
"""Generated from the contracts by `headrace contracts generate`; do not edit."""

from __future__ import annotations

from pydantic import AwareDatetime, BaseModel, ConfigDict


class ParcelDispatchedLosses(BaseModel):
    """How many parcels left a depot in a window of time, how late, and how many were lost."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
    )
    window_id: str
    """Identity of the window: origin and begin, e.g. NTH/2013-01-01T10:15:00Z."""
    origin: str
    """Code of the depot that sends them."""
    begins_at: AwareDatetime
    """Begin of the window of dispatched_at, and of due_at of what was lost, inclusive, instant in UTC, milliseconds since the epoch."""
    ends_at: AwareDatetime
    """End of the window, exclusive, instant in UTC, milliseconds since the epoch."""
    dispatches: int
    """Parcels that left the origin in the window, without unit."""
    losses: int
    """Parcels that were due to leave the origin in the window, and were lost, without unit."""
    lost_share: float
    """Losses in dispatches and losses together, from 0 to 1, without unit."""
    delay_mean_minutes: float | None = None
    """Mean of their dispatch delays, in minutes; negative when early. Null when none left."""
    delay_p95_minutes: float | None = None
    """95th percentile of their dispatch delays, in minutes, exact, interpolated between the two nearest. Null when none left."""
    is_final: bool
    """Whether nothing can change the window any more; filled in by the platform."""

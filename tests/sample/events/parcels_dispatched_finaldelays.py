# ruff: noqa
"""Generated from the contracts by `headrace contracts generate`; do not edit."""

from __future__ import annotations

from pydantic import AwareDatetime, BaseModel, ConfigDict


class ParcelDispatchedFinalDelays(BaseModel):
    """How late the parcels were that left an depot in a window of time that is over."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
    )
    window_id: str
    """Identity of the window: origin and begin, e.g. NTH/2013-01-01T10:15:00Z."""
    origin: str
    """FAA code of the dispatch depot."""
    begins_at: AwareDatetime
    """Begin of the window of dispatched_at, inclusive, instant in UTC, milliseconds since the epoch."""
    ends_at: AwareDatetime
    """End of the window, exclusive, instant in UTC, milliseconds since the epoch."""
    dispatches: int
    """Parcels that left the origin in the window, without unit."""
    delay_mean_minutes: float
    """Mean of their dispatch delays, in minutes; negative when early."""
    delay_p95_minutes: float
    """95th percentile of their dispatch delays, in minutes, exact, interpolated between the two nearest."""
    is_final: bool
    """Whether nothing can change the window any more; filled in by the platform."""

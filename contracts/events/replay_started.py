# ruff: noqa
"""Generated from the contracts by `headrace contracts generate`; do not edit."""

from __future__ import annotations

from pydantic import AwareDatetime, BaseModel, ConfigDict


class ReplayStarted(BaseModel):
    """The replay clock was set: from wall_at on, event time runs on from event_at at the given speed."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
    )
    event_at: AwareDatetime
    """Event time at which the replay begins or goes on, instant in UTC, milliseconds since the epoch."""
    wall_at: AwareDatetime
    """Wall-clock time that belongs to event_at, instant in UTC, milliseconds since the epoch."""
    speed: float
    """Seconds of event time per second of wall-clock time."""
    until_at: AwareDatetime | None = None
    """Event time at which the replay ends, instant in UTC, milliseconds since the epoch. Null: at the end of the data."""

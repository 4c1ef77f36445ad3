# ruff: noqa
"""Generated from the contracts by `headrace contracts generate`; do not edit."""

from __future__ import annotations

from pydantic import AwareDatetime, BaseModel, ConfigDict


class ParcelDispatchedSlowest(BaseModel):
    """A place in the list of the lines with the highest mean delay."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
    )
    place: int
    """Place in the list, from 1 on; 1 is the slowest. Filled in by the platform."""
    origin: str
    """Depot that the parcels left."""
    destination: str
    """Depot that they go to."""
    dispatches: int
    """Parcels that have left on the line, without unit. A line with fewer than two stands behind those that have more."""
    late_mean_minutes: float
    """Mean of their delays, in minutes; negative when early."""
    last_dispatched_at: AwareDatetime
    """When the newest of them left, instant in UTC, milliseconds since the epoch."""

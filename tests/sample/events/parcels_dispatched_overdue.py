# ruff: noqa
"""Generated from the contracts by `headrace contracts generate`; do not edit."""

from __future__ import annotations

from pydantic import AwareDatetime, BaseModel, ConfigDict


class OverdueParcelDispatched(BaseModel):
    """A parcel left its depot more than fifteen minutes late."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
    )
    parcel_id: str
    """Identity of one parcel: courier and parcel number, origin, due instant in UTC, e.g. UA1545-EST-20130101T1015Z."""
    courier: str
    """Two-character code of the courier; key of the dimension couriers."""
    origin: str
    """Code of the depot that sends it; key of the dimension depots."""
    dispatched_at: AwareDatetime
    """When it was dispatched, instant in UTC, milliseconds since the epoch."""
    late_minutes: int
    """Dispatched minus due, in minutes; negative when early."""
    late_hours: float
    """Dispatched minus due, in hours."""

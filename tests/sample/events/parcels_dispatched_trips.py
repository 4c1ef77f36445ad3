# ruff: noqa
"""Generated from the contracts by `headrace contracts generate`; do not edit."""

from __future__ import annotations

from pydantic import AwareDatetime, BaseModel, ConfigDict


class ParcelDispatchedTrip(BaseModel):
    """A parcel from its depot to its destination, as far as it came."""

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
    destination: str
    """Code of the depot that it goes to; key of the dimension depots."""
    dispatched_at: AwareDatetime
    """When it was dispatched, instant in UTC, milliseconds since the epoch."""
    delivered_at: AwareDatetime | None = None
    """When it was delivered, instant in UTC, milliseconds since the epoch. Null when it was not within twenty hours."""
    late_minutes: int
    """Dispatched minus due, in minutes; negative when early."""
    delivered_late_minutes: int | None = None
    """Delivered minus expected, in minutes; negative when early. Null without a delivery."""

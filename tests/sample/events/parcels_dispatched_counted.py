# ruff: noqa
"""Generated from the contracts by `headrace contracts generate`; do not edit."""

from __future__ import annotations

from pydantic import AwareDatetime, BaseModel, ConfigDict


class ParcelDispatchedCounted(BaseModel):
    """A parcel left its depot; with what was known by then of the van that took it."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
    )
    parcel_id: str
    """Identity of one parcel: courier and parcel number, origin, due instant in UTC, e.g. UA1545-EST-20130101T1015Z."""
    courier: str
    """Two-character code of the courier; key of the dimension couriers."""
    van_id: str
    """Registration of the van; key of the dimension vans."""
    dispatched_at: AwareDatetime
    """When it was dispatched, instant in UTC, milliseconds since the epoch."""
    late_minutes: int
    """Dispatched minus due, in minutes; negative when early."""
    late_in_a_row: int
    """Parcels that the van has left late with, one after the other, this one included, without unit."""
    late_mean_minutes: float
    """Mean of late_minutes of the parcels of the van up to this one, in minutes; the newest counts for a half."""

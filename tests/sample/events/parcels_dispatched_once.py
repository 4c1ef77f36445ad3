# ruff: noqa
"""Generated from the contracts by `headrace contracts generate`; do not edit."""

from __future__ import annotations

from datetime import date

from pydantic import AwareDatetime, BaseModel, ConfigDict


class ParcelDispatchedOnce(BaseModel):
    """A parcel left its depot; told once, though its dispatch may have been sent again."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
    )
    parcel_id: str
    """Identity of one parcel: courier and parcel number, origin, due instant in UTC, e.g. UA1545-EST-20130101T1015Z."""
    courier: str
    """Two-character code of the courier; key of the dimension couriers."""
    parcel_number: int
    """Parcel number of the courier, without unit."""
    van_id: str | None = None
    """Registration of the van; key of the dimension vans. Null when it was not recorded."""
    origin: str
    """Code of the depot that sends it; key of the dimension depots."""
    destination: str
    """Code of the depot that it goes to; key of the dimension depots."""
    posted_on: date
    """Calendar date on which it was posted, local to the origin."""
    due_at: AwareDatetime
    """When it is due to be dispatched, instant in UTC, milliseconds since the epoch."""
    dispatched_at: AwareDatetime
    """When it was dispatched, instant in UTC, milliseconds since the epoch."""
    late_minutes: int
    """Dispatched minus due, in minutes; negative when early."""
    weight_grams: int
    """Weight of the parcel with its wrapping, in grams."""

# ruff: noqa
"""Generated from the contracts by `headrace contracts generate`; do not edit."""

from __future__ import annotations

from pydantic import AwareDatetime, BaseModel, ConfigDict


class DepotServed(BaseModel):
    """A parcel that was delivered was served by a depot."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
    )
    parcel_id: str
    """Identity of one parcel: courier and parcel number, origin, due instant in UTC, e.g. UA1545-EST-20130101T1015Z."""
    courier: str
    """Two-character code of the courier; key of the dimension couriers."""
    delivered_at: AwareDatetime
    """When it was delivered, instant in UTC, milliseconds since the epoch."""
    delivered_late_minutes: int
    """Delivered minus expected, in minutes; negative when early."""
    weight_grams: int
    """Weight of the parcel with its wrapping, in grams."""
    served_as: str
    """What the depot was to the parcel: origin or destination."""
    depot: str
    """Code of the depot; key of the dimension depots."""

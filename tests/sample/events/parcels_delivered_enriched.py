# ruff: noqa
"""Generated from the contracts by `headrace contracts generate`; do not edit."""

from __future__ import annotations

from datetime import date

from pydantic import AwareDatetime, BaseModel, ConfigDict


class ParcelDeliveredEnriched(BaseModel):
    """A delivered parcel with the courier, depot and van that it names, and its rate."""

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
    expected_at: AwareDatetime
    """When it is expected at the destination, instant in UTC, milliseconds since the epoch."""
    delivered_at: AwareDatetime
    """When it was delivered, instant in UTC, milliseconds since the epoch."""
    delivered_late_minutes: int
    """Delivered minus expected, in minutes; negative when early."""
    on_road_minutes: int | None = None
    """Time on the road, in minutes. Null when it was not recorded."""
    weight_grams: int
    """Weight of the parcel with its wrapping, in grams."""
    courier_name: str | None = None
    """Name of the courier, from couriers."""
    destination_name: str | None = None
    """Name of the destination, from depots."""
    destination_timezone: str | None = None
    """IANA time zone of the destination, from depots."""
    van_model: str | None = None
    """Model of the van, from vans."""
    van_seats: int | None = None
    """Number of seats of the van, a count, from vans."""
    carried_grams_per_hour: float | None = None
    """Weight over time on the road, in grams per hour; computed. Null when the time was not recorded."""
    unmatched: list[str]
    """The lookups that had no row, in this order: couriers, depots.destination, vans. Empty when all matched."""
    dimension_versions: dict[str, int]
    """Delta version of each dimension table that was joined, by dimension name; a count of commits."""
    revision: int | None = 0
    """0 for the first enrichment of a raw record, one more for each repair of the same record; a count."""

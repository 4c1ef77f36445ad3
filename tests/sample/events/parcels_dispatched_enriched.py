# ruff: noqa
"""Generated from the contracts by `headrace contracts generate`; do not edit."""

from __future__ import annotations

from datetime import date

from pydantic import AwareDatetime, BaseModel, ConfigDict


class ParcelDispatchedEnriched(BaseModel):
    """A dispatched parcel with the courier, depots and van that it names."""

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
    courier_name: str | None = None
    """Name of the courier, from couriers."""
    origin_name: str | None = None
    """Name of the origin, from depots."""
    origin_timezone: str | None = None
    """IANA time zone of the origin, from depots."""
    destination_name: str | None = None
    """Name of the destination, from depots."""
    destination_timezone: str | None = None
    """IANA time zone of the destination, from depots."""
    destination_latitude_degrees: float | None = None
    """Latitude of the destination, in degrees north, from depots."""
    destination_longitude_degrees: float | None = None
    """Longitude of the destination, in degrees east, from depots."""
    destination_altitude_feet: int | None = None
    """Elevation of the destination, in feet above sea level, from depots."""
    van_built_year: int | None = None
    """Calendar year in which the van was built, from vans."""
    van_manufacturer: str | None = None
    """Manufacturer of the van, from vans."""
    van_model: str | None = None
    """Model of the van, from vans."""
    van_engines: int | None = None
    """Number of engines of the van, a count, from vans."""
    van_seats: int | None = None
    """Number of seats of the van, a count, from vans."""
    van_engine_type: str | None = None
    """Kind of engine of the van, e.g. diesel, from vans."""
    unmatched: list[str]
    """The lookups that had no row, in this order: couriers, depots.origin, depots.destination, vans. Empty when all matched."""
    dimension_versions: dict[str, int]
    """Delta version of each dimension table that was joined, by dimension name; a count of commits."""
    revision: int | None = 0
    """0 for the first enrichment of a raw record, one more for each repair of the same record; a count."""

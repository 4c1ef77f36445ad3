# ruff: noqa
"""Generated from the contracts by `headrace contracts generate`; do not edit."""

from __future__ import annotations

from datetime import date

from pydantic import AwareDatetime, BaseModel, ConfigDict


class FlightDepartedEnriched(BaseModel):
    """A departed flight with the airline, airports and plane that it names."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
    )
    flight_id: str
    """Identity of one scheduled flight: carrier and flight number, origin, scheduled departure in UTC, e.g. UA1545-EWR-20130101T1015Z."""
    carrier: str
    """Two-character IATA code of the operating airline; key of the dimension airlines."""
    flight_number: int
    """Flight number of the carrier, without unit."""
    tail_number: str | None = None
    """Registration of the aircraft; key of the dimension planes. Null when it was not recorded."""
    origin: str
    """FAA code of the departure airport; key of the dimension airports."""
    destination: str
    """FAA code of the scheduled arrival airport; key of the dimension airports."""
    flight_date: date
    """Calendar date of the scheduled departure, local to the origin."""
    scheduled_departure_at: AwareDatetime
    """Scheduled departure, instant in UTC, milliseconds since the epoch."""
    departed_at: AwareDatetime
    """Actual departure from the gate, instant in UTC, milliseconds since the epoch."""
    departure_delay_minutes: int
    """Actual minus scheduled departure, in minutes; negative when early."""
    distance_miles: int
    """Great-circle distance between origin and destination, in statute miles."""
    airline_name: str | None = None
    """Name of the carrier, from airlines."""
    origin_name: str | None = None
    """Name of the departure airport, from airports."""
    origin_timezone: str | None = None
    """IANA time zone of the departure airport, from airports."""
    destination_name: str | None = None
    """Name of the arrival airport, from airports."""
    destination_timezone: str | None = None
    """IANA time zone of the arrival airport, from airports."""
    destination_latitude_degrees: float | None = None
    """Latitude of the arrival airport, in degrees north, from airports."""
    destination_longitude_degrees: float | None = None
    """Longitude of the arrival airport, in degrees east, from airports."""
    destination_altitude_feet: int | None = None
    """Elevation of the arrival airport, in feet above sea level, from airports."""
    plane_built_year: int | None = None
    """Calendar year in which the plane was built, from planes."""
    plane_manufacturer: str | None = None
    """Manufacturer of the plane, from planes."""
    plane_model: str | None = None
    """Model of the plane, from planes."""
    plane_engines: int | None = None
    """Number of engines of the plane, a count, from planes."""
    plane_seats: int | None = None
    """Number of seats of the plane, a count, from planes."""
    plane_engine_type: str | None = None
    """Kind of engine of the plane, e.g. Turbo-fan, from planes."""
    unmatched: list[str]
    """The lookups that had no row, in this order: airlines, airports.origin, airports.destination, planes. Empty when all matched."""
    dimension_versions: dict[str, int]
    """Delta version of each dimension table that was joined, by dimension name; a count of commits."""
    revision: int | None = 0
    """0 for the first enrichment of a raw record, one more for each repair of the same record; a count."""

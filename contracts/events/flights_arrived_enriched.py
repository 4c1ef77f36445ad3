# ruff: noqa
"""Generated from the contracts by `headrace contracts generate`; do not edit."""

from __future__ import annotations

from datetime import date

from pydantic import AwareDatetime, BaseModel, ConfigDict


class FlightArrivedEnriched(BaseModel):
    """An arrived flight with the airline, airport and plane that it names, and its speed."""

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
    scheduled_arrival_at: AwareDatetime
    """Scheduled arrival, instant in UTC, milliseconds since the epoch."""
    arrived_at: AwareDatetime
    """Actual arrival at the gate, instant in UTC, milliseconds since the epoch."""
    arrival_delay_minutes: int
    """Actual minus scheduled arrival, in minutes; negative when early."""
    air_time_minutes: int | None = None
    """Time in the air, in minutes. Null when it was not recorded."""
    distance_miles: int
    """Great-circle distance between origin and destination, in statute miles."""
    airline_name: str | None = None
    """Name of the carrier, from airlines."""
    destination_name: str | None = None
    """Name of the arrival airport, from airports."""
    destination_timezone: str | None = None
    """IANA time zone of the arrival airport, from airports."""
    plane_model: str | None = None
    """Model of the plane, from planes."""
    plane_seats: int | None = None
    """Number of seats of the plane, a count, from planes."""
    ground_speed_miles_per_hour: float | None = None
    """Distance over time in the air, in statute miles per hour; computed. Null when the time was not recorded."""
    unmatched: list[str]
    """The lookups that had no row, in this order: airlines, airports.destination, planes. Empty when all matched."""
    dimension_versions: dict[str, int]
    """Delta version of each dimension table that was joined, by dimension name; a count of commits."""
    revision: int | None = 0
    """0 for the first enrichment of a raw record, one more for each repair of the same record; a count."""

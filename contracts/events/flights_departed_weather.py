# ruff: noqa
"""Generated from the contracts by `headrace contracts generate`; do not edit."""

from __future__ import annotations

from decimal import Decimal

from pydantic import AwareDatetime, BaseModel, ConfigDict


class DepartureWeather(BaseModel):
    """A flight that left its gate, and the weather at its origin in that hour. There is one for each pair: of an hour that was observed twice a flight has two, which differ in ce_id."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
    )
    flight_id: str
    """Identity of one scheduled flight: carrier and flight number, origin, scheduled departure in UTC, e.g. UA1545-EWR-20130101T1015Z."""
    carrier: str
    """Two-character IATA code of the operating airline; key of the dimension airlines."""
    origin: str
    """FAA code of the departure airport; key of the dimension airports."""
    destination: str
    """FAA code of the scheduled arrival airport; key of the dimension airports."""
    departed_at: AwareDatetime
    """Actual departure from the gate, instant in UTC, milliseconds since the epoch."""
    departure_delay_minutes: int
    """Actual minus scheduled departure, in minutes; negative when early."""
    observed_at: AwareDatetime | None = None
    """Hour of the reading, instant in UTC, milliseconds since the epoch: the clock hour that departed_at is in. Null when there was none, and then all below are."""
    temperature_fahrenheit: float | None = None
    """Air temperature at the origin, in degrees Fahrenheit. Null when the station did not measure it."""
    wind_direction_degrees: int | None = None
    """Direction the wind comes from, in degrees clockwise from true north, 0 to 360. Null when the station did not measure it."""
    wind_speed_mph: float | None = None
    """Mean wind speed, in statute miles per hour. Null when the station did not measure it."""
    wind_gust_mph: float | None = None
    """Peak gust, in statute miles per hour. Null when there was no gust."""
    precipitation_inches: Decimal | None = None
    """Precipitation in the hour, in inches, exact to a hundredth. Null without a reading."""
    visibility_miles: float | None = None
    """Horizontal visibility, in statute miles, at most 10. Null without a reading."""

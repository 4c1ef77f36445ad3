# ruff: noqa
"""Generated from the contracts by `headrace contracts generate`; do not edit."""

from __future__ import annotations

from decimal import Decimal

from pydantic import AwareDatetime, BaseModel, ConfigDict


class DepotObserved(BaseModel):
    """One hourly reading of a depot's instruments."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
    )
    station: str
    """Code of the depot where the reading was taken."""
    observed_at: AwareDatetime
    """Hour of the reading, instant in UTC, milliseconds since the epoch."""
    temperature_fahrenheit: float | None = None
    """Air temperature, in degrees Fahrenheit."""
    dew_point_fahrenheit: float | None = None
    """Dew point, in degrees Fahrenheit."""
    relative_humidity_percent: float | None = None
    """Relative humidity, in percent, 0 to 100."""
    wind_direction_degrees: int | None = None
    """Direction the wind comes from, in degrees clockwise from true north, 0 to 360."""
    wind_speed_mph: float | None = None
    """Mean wind speed, in statute miles per hour."""
    wind_peak_mph: float | None = None
    """Strongest wind, in statute miles per hour. Null when there was none."""
    precipitation_inches: Decimal
    """Precipitation in the hour, in inches, exact to a hundredth."""
    pressure_millibars: float | None = None
    """Sea-level pressure, in millibars."""
    visibility_miles: float
    """Horizontal visibility, in statute miles, at most 10."""

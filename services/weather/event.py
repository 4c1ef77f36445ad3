"""A row of the table `weather` as the reading that it was."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation

from contracts.events import WeatherObserved
from services.replay.table import Row, required
from services.replay.unfit import Unfit


def event_of(row: Row) -> WeatherObserved | Unfit:
    """The reading; its measures are taken as they are, however odd (a wind of 1,048 mph on 12 February)."""
    try:
        direction = row["wind_dir"]
        return WeatherObserved(
            station=required(row, "origin"),
            observed_at=datetime.fromisoformat(required(row, "time_hour")).astimezone(UTC),
            temperature_fahrenheit=_number(row["temp"]),
            dew_point_fahrenheit=_number(row["dewp"]),
            relative_humidity_percent=_number(row["humid"]),
            wind_direction_degrees=None if direction is None else int(direction),
            wind_speed_mph=_number(row["wind_speed"]),
            wind_gust_mph=_number(row["wind_gust"]),
            precipitation_inches=Decimal(required(row, "precip")),
            pressure_millibars=_number(row["pressure"]),
            visibility_miles=float(required(row, "visib")),
        )
    except (ValueError, InvalidOperation) as error:
        return Unfit("Unreadable", str(error))


def event_id(reading: WeatherObserved) -> str:
    """Station and hour, e.g. `EWR-20130101T0600Z`: unique, also in the hour that the end of summer time repeats."""
    return f"{reading.station}-{reading.observed_at:%Y%m%dT%H%MZ}"


def _number(text: str | None) -> float | None:
    return None if text is None else float(text)

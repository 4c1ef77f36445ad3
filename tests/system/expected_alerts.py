"""The shipped rules once more, as plain Python, written from their descriptions: what must raise an alert."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Predicate = Callable[[dict[str, Any]], bool]


def _late(event: dict[str, Any], minutes: int) -> bool:
    return bool(event["departure_delay_minutes"] >= minutes)


def _at_least(value: float | None, least: float) -> bool:
    return value is not None and value >= least


RULES: dict[str, dict[str, Predicate]] = {
    "flights.departed.enriched.v1": {
        "departure_very_late": lambda e: _late(e, 300),
        "wide_body_late": lambda e: _late(e, 60) and _at_least(e["plane_seats"], 250),
        "old_plane_late": lambda e: _late(e, 60) and e["plane_built_year"] is not None and e["plane_built_year"] < 1986,
        "mountain_airport_late": lambda e: _late(e, 90) and _at_least(e["destination_altitude_feet"], 5000),
        "unregistered_plane_late": lambda e: (
            _late(e, 90) and e["tail_number"] is not None and "planes" in e["unmatched"]
        ),
    },
    "flights.cancelled.v1": {
        "florida_cancelled": lambda e: (
            e["distance_miles"] >= 1000 and e["origin"] == "JFK" and e["destination"] in {"FLL", "MIA", "MCO"}
        ),
        "west_coast_cancelled": lambda e: e["distance_miles"] >= 2500 and e["tail_number"] is not None,
    },
    "weather.observed.v1": {
        "strong_gusts": lambda e: _at_least(e["wind_gust_mph"], 40),
        "fog": lambda e: e["visibility_miles"] <= 0.25,
        "cloudburst": lambda e: (
            float(e["precipitation_inches"]) >= 0.3
            and e["temperature_fahrenheit"] is not None
            and e["temperature_fahrenheit"] > 34
        ),
    },
}
"""By topic and rule name: whether an event matches."""

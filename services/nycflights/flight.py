"""What departures and arrivals read alike from a row of the table `flights`."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Any

from services.replay.table import Row, required


def scheduled_flight(row: Row) -> dict[str, Any]:
    """The fields that every flight event has. Raises ValueError when a required value is missing or no number.

    `time_hour` is the scheduled hour as an instant in UTC, `minute` the minute within it.
    """
    carrier, number, origin = required(row, "carrier"), int(required(row, "flight")), required(row, "origin")
    scheduled_at, stamp = _scheduled(required(row, "time_hour"), required(row, "minute"))
    return {
        "flight_id": f"{carrier}{number}-{origin}-{stamp}",
        "carrier": carrier,
        "flight_number": number,
        "tail_number": row["tailnum"],
        "origin": origin,
        "destination": required(row, "dest"),
        "flight_date": _date(required(row, "year"), required(row, "month"), required(row, "day")),
        "scheduled_departure_at": scheduled_at,
        "distance_miles": int(required(row, "distance")),
    }


# Neighbouring rows share their day and their minute.
@lru_cache(maxsize=1024)
def _scheduled(time_hour: str, minute: str) -> tuple[datetime, str]:
    instant = datetime.fromisoformat(time_hour).astimezone(UTC) + timedelta(minutes=int(minute))
    return instant, f"{instant:%Y%m%dT%H%MZ}"


@lru_cache(maxsize=1024)
def _date(year: str, month: str, day: str) -> date:
    return date(int(year), int(month), int(day))

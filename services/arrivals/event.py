"""A row of the table `flights` as the event that it was at its destination."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from contracts.events import FlightArrived
from services.nycflights.flight import scheduled_flight
from services.replay.table import Row, Table, required
from services.replay.unfit import Unfit

# The four destinations of 2013 that the table `airports` lacks: Aguadilla, Ponce and San Juan in Puerto Rico, and
# Saint Thomas. All four keep Atlantic standard time all year.
NOT_IN_TABLE = {
    "BQN": "America/Puerto_Rico",
    "PSE": "America/Puerto_Rico",
    "SJU": "America/Puerto_Rico",
    "STT": "America/St_Thomas",
}


def timezones(airports: Table) -> dict[str, ZoneInfo]:
    """The time zone of every airport that has one, by FAA code."""
    names = {required(row, "faa"): row["tzone"] for row in airports} | NOT_IN_TABLE
    return {airport: ZoneInfo(name) for airport, name in names.items() if name is not None}


def event_of(row: Row, zones: Mapping[str, ZoneInfo]) -> FlightArrived | Unfit | None:
    """Arrived when the row has an arrival delay, unfit when the flight left and has none, None when it never left."""
    if row["dep_time"] is None:
        return None
    try:
        flight = scheduled_flight(row)
        if flight["destination"] not in zones:
            return Unfit("UnknownTimezone", f"no time zone is known for {flight['destination']}")
        scheduled_at = _next_time(
            required(row, "sched_arr_time"), flight["scheduled_departure_at"], zones[flight["destination"]]
        )
        if row["arr_delay"] is None:
            return Unfit("Diverted", "the flight left but has no arrival delay: it was diverted", scheduled_at)
        delay_minutes = int(row["arr_delay"])
        return FlightArrived(
            **flight,
            scheduled_arrival_at=scheduled_at,
            arrived_at=scheduled_at + timedelta(minutes=delay_minutes),
            arrival_delay_minutes=delay_minutes,
            air_time_minutes=None if row["air_time"] is None else int(row["air_time"]),
        )
    except ValueError as error:
        return Unfit("Unreadable", str(error))


def _next_time(local_time: str, after: datetime, zone: ZoneInfo) -> datetime:
    """The first instant after `after` when the clocks of `zone` show `local_time`, hours and minutes as HHMM."""
    hour, minute = divmod(int(local_time), 100)
    same_day = after.astimezone(zone).replace(hour=hour, minute=minute, fold=0)
    instant = same_day.astimezone(UTC)
    return instant if instant > after else (same_day + timedelta(days=1)).astimezone(UTC)

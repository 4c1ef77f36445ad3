"""Hires, made up: of each number always the same."""

from __future__ import annotations

from datetime import datetime, timedelta

from contracts.events import HireEnded, HireStarted

_STATIONS = 4
"""One more than the table has: a bicycle can be docked where nobody knows of a station."""


def hire(hire_id: str, number: int, ended_at: datetime) -> tuple[HireStarted, HireEnded]:
    """Both events of a hire that ended at this instant."""
    minutes = number * 37 % 240
    bicycle_id = f"B-{number % 50}"
    started = HireStarted(
        hire_id=hire_id,
        bicycle_id=bicycle_id,
        kind="electric" if number % 5 == 0 else "plain",
        station_id=f"S-{number % 3}",
        started_at=ended_at - timedelta(minutes=minutes),
    )
    ended = HireEnded(
        hire_id=hire_id,
        bicycle_id=bicycle_id,
        station_id=f"S-{number % _STATIONS}",
        ended_at=ended_at,
        duration_minutes=minutes,
    )
    return started, ended

"""The order of a timeline and the clock that runs through it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from operator import attrgetter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts import topics
from contracts.definitions.catalog import load_catalog
from services.departures.event import event_of
from services.replay.clock import ReplayClock
from services.replay.position import START, Position
from services.replay.table import Table
from services.replay.timeline import Timeline
from services.replay.unfit import Unfit

CATALOG = load_catalog()
NOON = datetime(2013, 1, 1, 12, tzinfo=UTC)
HEADER = "year,month,day,dep_time,dep_delay,carrier,flight,tailnum,origin,dest,distance,minute,time_hour"


def a_row(*, flight: int = 1, delay: str = "0", minute: str = "0", hour: str = "2013-01-01T10:00:00Z") -> str:
    return f"2013,1,1,1000,{delay},AA,{flight},NA,JFK,MIA,1089,{minute},{hour}"


def a_timeline(*rows: str) -> Timeline:
    table = Table("flights", "\n".join([HEADER, *rows]))
    return Timeline(
        table, event_of, attrgetter("flight_id"), (topics.FLIGHTS_DEPARTED, topics.FLIGHTS_CANCELLED), CATALOG
    )


def test_entries_come_by_event_time_and_then_by_row() -> None:
    timeline = a_timeline(
        a_row(flight=1, delay="600"),
        a_row(flight=2, hour="2013-01-01T12:00:00Z"),
        a_row(flight=3, minute="5"),
        a_row(flight=4, minute="9", delay="-4"),
    )
    assert [entry.position.row for entry in timeline.entries()] == [2, 3, 1, 0]


def test_an_unreadable_row_takes_its_turn_at_its_hour_and_one_without_an_hour_at_the_last() -> None:
    later = "2013-01-01T15:00:00Z"
    timeline = a_timeline(
        a_row(hour="NA"), a_row(minute="59", hour=later), a_row(minute="soon"), a_row(delay="soon", minute="59")
    )

    entries = list(timeline.entries())

    assert [entry.position.row for entry in entries] == [2, 3, 0, 1]
    unfit = [entry for entry in entries if isinstance(entry.content, Unfit)]
    assert {entry.stream for entry in unfit} == {"flights.departed.v1.dlq"}
    assert {entry.id for entry in unfit} == {"flights-0", "flights-2", "flights-3"}


def test_a_row_that_happens_long_before_its_hour_stops_the_replay_instead_of_breaking_the_order() -> None:
    with pytest.raises(ValueError, match="row 0 of flights"):
        list(a_timeline(a_row(delay="-600")).entries())


@given(st.integers(0, 4_000_000_000_000), st.integers(0, 10_000_000))
def test_a_position_survives_its_header_and_sorts_as_text(time: int, row: int) -> None:
    position = Position(time, row)
    assert Position.parse(str(position)) == position
    assert START < position
    assert str(position) < str(Position(time, row + 1)) < str(Position(time + 1, 0))


@pytest.mark.parametrize("text", ["1-2", "1_0-000000001", " 00000000000001-000000001", "0000000000000001-000000001"])
def test_a_text_that_no_position_is_written_as_is_none(text: str) -> None:
    with pytest.raises(ValueError):
        Position.parse(text)


def a_clock(*, speed: float = 60.0, until_at: datetime | None = None) -> ReplayClock:
    return ReplayClock(event_at=NOON, wall_at=datetime(2026, 1, 1, tzinfo=UTC), speed=speed, until_at=until_at)


def test_event_time_runs_at_the_clock_s_speed() -> None:
    clock = a_clock(speed=60)
    assert clock.event_time(clock.wall_at + timedelta(seconds=10)) == NOON + timedelta(minutes=10)


def test_event_time_stands_still_before_the_start_and_after_the_end() -> None:
    clock = a_clock(until_at=NOON + timedelta(hours=1))
    assert clock.event_time(clock.wall_at - timedelta(days=1)) == NOON
    assert clock.event_time(clock.wall_at + timedelta(days=1)) == NOON + timedelta(hours=1)
    assert not clock.ends_before(NOON + timedelta(hours=1))
    assert clock.ends_before(NOON + timedelta(hours=1, milliseconds=1))


@given(st.floats(0.01, 1e6), st.timedeltas(timedelta(0), timedelta(days=365)))
def test_wall_time_is_when_the_event_time_is_reached(speed: float, after: timedelta) -> None:
    clock = a_clock(speed=speed)
    due = clock.wall_time(NOON + after)
    assert abs(clock.event_time(due) - (NOON + after)) <= timedelta(microseconds=1) * (speed + 1)

"""The order of a timeline and the clock that runs through it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from operator import attrgetter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.replay.clock import ReplayClock
from services.replay.position import START, Position
from services.replay.table import Row, Table, required
from services.replay.timeline import Timeline
from services.replay.unfit import Unfit
from tests import sample
from tests.sample import topics
from tests.sample.events import ParcelDispatched, ParcelLost

CATALOG = sample.catalog()
NOON = datetime(2013, 1, 1, 12, tzinfo=UTC)
HEADER = "late,courier,parcel,plate,origin,destination,weight,minute,time_hour"


def event_of(row: Row) -> ParcelDispatched | Unfit:
    try:
        due_at = datetime.fromisoformat(required(row, "time_hour")) + timedelta(minutes=int(required(row, "minute")))
        late_minutes = int(required(row, "late"))
        return ParcelDispatched(
            parcel_id=f"{row['courier']}{row['parcel']}-{due_at:%H%M}",
            courier=required(row, "courier"),
            parcel_number=int(required(row, "parcel")),
            van_id=row["plate"],
            origin=required(row, "origin"),
            destination=required(row, "destination"),
            posted_on=due_at.date(),
            due_at=due_at,
            dispatched_at=due_at + timedelta(minutes=late_minutes),
            late_minutes=late_minutes,
            weight_grams=int(required(row, "weight")),
        )
    except ValueError as error:
        return Unfit("Unreadable", str(error))


def a_row(*, parcel: int = 1, late: str = "0", minute: str = "0", hour: str = "2013-01-01T10:00:00Z") -> str:
    return f"{late},AA,{parcel},NA,NTH,MIA,1089,{minute},{hour}"


def a_timeline(*rows: str) -> Timeline:
    table = Table("parcels", "\n".join([HEADER, *rows]))
    return Timeline(table, event_of, attrgetter("parcel_id"), (topics.PARCELS_DISPATCHED, topics.PARCELS_LOST), CATALOG)


def test_entries_come_by_event_time_and_then_by_row() -> None:
    timeline = a_timeline(
        a_row(parcel=1, late="600"),
        a_row(parcel=2, hour="2013-01-01T12:00:00Z"),
        a_row(parcel=3, minute="5"),
        a_row(parcel=4, minute="9", late="-4"),
    )
    assert [entry.position.row for entry in timeline.entries()] == [2, 3, 1, 0]


def test_a_row_may_be_events_of_several_topics_each_at_its_own_time() -> None:
    def events_of(row: Row) -> tuple[ParcelLost | ParcelDispatched | Unfit | None, ...]:
        event = event_of(row)
        if isinstance(event, Unfit):
            return (event, None)
        shared = {name: value for name, value in event.model_dump().items() if name in ParcelLost.model_fields}
        return event, ParcelLost(**shared)

    table = Table("parcels", "\n".join([HEADER, a_row(parcel=1, late="600"), a_row(parcel=2), a_row(late="soon")]))
    streams = (topics.PARCELS_DISPATCHED, topics.PARCELS_LOST)
    entries = list(Timeline(table, events_of, attrgetter("parcel_id"), streams, CATALOG).entries())
    # A lost parcel is lost when it is due; of one row and one time it is the topic's name that decides.
    assert [(entry.stream, entry.position.row) for entry in entries] == [
        ("parcels.lost.v1", 0),
        ("parcels.dispatched.v1", 1),
        ("parcels.lost.v1", 1),
        ("parcels.dispatched.v1.dlq", 2),
        ("parcels.dispatched.v1", 0),
    ]


def test_an_unreadable_row_takes_its_turn_at_its_hour_and_one_without_an_hour_at_the_last() -> None:
    later = "2013-01-01T15:00:00Z"
    timeline = a_timeline(
        a_row(hour="NA"), a_row(minute="59", hour=later), a_row(minute="soon"), a_row(late="soon", minute="59")
    )

    entries = list(timeline.entries())

    assert [entry.position.row for entry in entries] == [2, 3, 0, 1]
    unfit = [entry for entry in entries if isinstance(entry.content, Unfit)]
    assert {entry.stream for entry in unfit} == {"parcels.dispatched.v1.dlq"}
    assert {entry.id for entry in unfit} == {"parcels-0", "parcels-2", "parcels-3"}


def test_a_row_that_happens_long_before_its_hour_stops_the_replay_instead_of_breaking_the_order() -> None:
    with pytest.raises(ValueError, match="row 0 of parcels"):
        list(a_timeline(a_row(late="-600")).entries())


@given(st.integers(0, 4_000_000_000_000), st.integers(0, 10_000_000))
def test_a_position_survives_its_header_and_sorts_as_text(time: int, row: int) -> None:
    position = Position(time, row)
    assert Position.parse(str(position)) == position
    assert str(position) < str(Position(time, row + 1)) < str(Position(time + 1, 0))


@given(st.integers(-60_000_000_000_000, 4_000_000_000_000), st.integers(0, 10_000_000))
def test_a_position_of_any_year_survives_its_header_and_is_behind_the_start(time: int, row: int) -> None:
    position = Position(time, row)
    assert Position.parse(str(position)) == position > START


@pytest.mark.parametrize("text", ["1-2", "1_0-000000001", " 00000000000001-000000001", "0000000000000001-000000001"])
def test_a_text_that_no_position_is_written_as_is_none(text: str) -> None:
    with pytest.raises(ValueError):
        Position.parse(text)


@pytest.mark.parametrize("time", [253_402_300_800_000, -62_135_596_800_001])
def test_a_position_in_no_year_is_none_though_its_header_says_it(time: int) -> None:
    with pytest.raises(ValueError):
        Position.parse(str(Position(time, 1)))
    inside = Position(time + (1 if time < 0 else -1), 1)
    assert Position.parse(str(inside)).occurred_at.year in (1, 9999)


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


def test_a_clock_that_is_too_fast_for_the_calendar_stands_at_its_end() -> None:
    now = datetime(2026, 1, 2, tzinfo=UTC)
    assert a_clock(speed=1e12).event_time(now) == datetime.max.replace(tzinfo=UTC)
    assert a_clock(speed=1e12, until_at=NOON).event_time(now) == NOON

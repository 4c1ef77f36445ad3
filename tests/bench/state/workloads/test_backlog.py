"""Which events a backlog has, and in which order."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import pairwise

from services.nycflights.tables import read_table
from tests.bench.state.workloads.backlog import Event, first_events, laps
from tests.bench.state.workloads.examples import BEGIN, a_departure, an_arrival
from tests.bench.state.workloads.join import departures_and_arrivals
from tests.bench.state.workloads.sessions import departures_with_one_gap

_YEAR = timedelta(days=366)


def test_events_of_both_topics_are_in_the_order_of_their_times() -> None:
    events = first_events(departures_and_arrivals, read_table("flights"), 3_000)
    assert len(events) == 3_000
    assert len({each.topic for each in events}) == 2
    assert all(one.at <= other.at for one, other in pairwise(events))


def test_an_event_of_a_later_day_is_not_left_out() -> None:
    few = first_events(departures_and_arrivals, read_table("flights"), 2_500)
    assert few == first_events(departures_and_arrivals, read_table("flights"), 20_000)[:2_500]


def test_the_sessions_are_of_airports_with_one_gap() -> None:
    events = first_events(departures_with_one_gap, read_table("flights"), 1_000)
    assert {each.fields["origin"] for each in events} == {"EWR", "LGA"}


def test_each_copy_is_a_flight_of_its_own_at_the_same_time() -> None:
    events = laps([a_departure(0, flight_id="a"), an_arrival(5, flight_id="a")], 4, copies=2)
    assert [(each.flight_id, each.at) for each in events] == [
        ("a-0", BEGIN),
        ("a-1", BEGIN),
        ("a-0", BEGIN + timedelta(minutes=5)),
        ("a-1", BEGIN + timedelta(minutes=5)),
    ]


def test_the_last_lap_is_the_data_sets_and_each_before_it_a_year_earlier() -> None:
    assert _times(laps([a_departure()], 3, copies=1)) == [BEGIN - 2 * _YEAR, BEGIN - _YEAR, BEGIN]


def test_a_lap_that_is_cut_short_is_the_last_one() -> None:
    assert _times(laps([a_departure(), a_departure(5)], 3, copies=1)) == [
        BEGIN - _YEAR,
        BEGIN - _YEAR + timedelta(minutes=5),
        BEGIN,
    ]


def _times(events: list[Event]) -> list[datetime]:
    return [each.at for each in events]

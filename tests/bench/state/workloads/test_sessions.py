"""The oracle of the sessions."""

from __future__ import annotations

from datetime import timedelta

from tests.bench.state.workloads.backlog import Backlog
from tests.bench.state.workloads.examples import BEGIN, a_departure
from tests.bench.state.workloads.sessions import SESSIONS, sessions

_GAP = 6 * 60


def test_a_session_has_all_that_a_contract_names() -> None:
    (row,) = sessions([a_departure(90, delay=40), a_departure(0, delay=-5), a_departure(60, delay=50)]).values()
    assert row == {
        "rotation_id": "N14228/2013-01-01T17:45:00Z",
        "tail_number": "N14228",
        "begins_at": BEGIN,
        "ends_at": BEGIN + timedelta(minutes=90 + _GAP),
        "legs": 3,
        "hours": 1.5,
        "delay_first_minutes": -5,
        "delay_last_minutes": 40,
        "delay_max_minutes": 50,
        "delay_sum_minutes": 85,
        "is_final": True,
    }


def test_a_session_goes_on_after_the_gap_and_not_after_more() -> None:
    rows = sessions([a_departure(0), a_departure(_GAP), a_departure(2 * _GAP + 1)])
    assert [row["legs"] for row in rows.values()] == [2, 1]


def test_of_departures_at_one_time_the_lesser_delay_is_the_first() -> None:
    (row,) = sessions([a_departure(delay=7), a_departure(delay=3)]).values()
    assert (row["delay_first_minutes"], row["delay_last_minutes"]) == (3, 7)


def test_an_aircraft_has_sessions_of_its_own_and_an_unknown_one_none() -> None:
    rows = sessions([a_departure(tail_number=number) for number in ("N1", "N2", None)])
    assert [row["tail_number"] for row in rows.values()] == ["N1", "N2"]


def test_the_closing_departures_end_all_others_sessions_and_not_their_own() -> None:
    backlog = Backlog([a_departure()], [a_departure(3 * 24 * 60)] * 2)
    assert SESSIONS.expected(backlog).keys() == {"N14228/2013-01-01T16:15:00Z"}

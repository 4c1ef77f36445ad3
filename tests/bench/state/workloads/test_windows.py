"""The oracle of the windows."""

from __future__ import annotations

from datetime import timedelta

from tests.bench.state.workloads.backlog import Backlog
from tests.bench.state.workloads.examples import BEGIN, a_departure
from tests.bench.state.workloads.windows import FINAL_WINDOWS, WINDOWS, windows


def test_a_window_has_its_begin_and_not_its_end() -> None:
    rows = windows([a_departure(0), a_departure(14.99), a_departure(15)], is_final=False)
    assert {key: row["departures"] for key, row in rows.items()} == {
        "EWR/2013-01-01T10:15:00Z": 2,
        "EWR/2013-01-01T10:30:00Z": 1,
    }


def test_an_origin_has_windows_of_its_own() -> None:
    assert windows([a_departure(), a_departure(origin="LGA")], is_final=True).keys() == {
        "EWR/2013-01-01T10:15:00Z",
        "LGA/2013-01-01T10:15:00Z",
    }


def test_mean_and_percentile_are_those_of_the_contract() -> None:
    (row,) = windows([a_departure(delay=delay) for delay in (30, 0, 10)], is_final=True).values()
    assert row == {
        "window_id": "EWR/2013-01-01T10:15:00Z",
        "origin": "EWR",
        "begins_at": BEGIN,
        "ends_at": BEGIN + timedelta(minutes=15),
        "departures": 3,
        "delay_mean_minutes": 40 / 3,
        "delay_p95_minutes": 28.0,
        "is_final": True,
    }


def test_the_closing_departures_end_all_others_windows_and_not_their_own() -> None:
    backlog = Backlog([a_departure()], [a_departure(24 * 60)] * 2)
    assert FINAL_WINDOWS.expected(backlog).keys() == {"EWR/2013-01-01T10:15:00Z"}
    assert WINDOWS.expected(backlog)["EWR/2013-01-02T10:15:00Z"]["departures"] == 2


def test_a_record_tells_of_the_events_before_its_window() -> None:
    backlog = Backlog([a_departure(-1), a_departure(0), a_departure(1)], [a_departure(24 * 60)])
    row = WINDOWS.expected(backlog)["EWR/2013-01-01T10:15:00Z"]
    assert backlog.before(WINDOWS.reached_by(row)) == 1

"""The oracle of the join."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.bench.state.workloads.backlog import Backlog
from tests.bench.state.workloads.examples import BEGIN, a_departure, an_arrival
from tests.bench.state.workloads.join import JOIN, legs

_LONGEST = 20 * 60


def test_a_departure_has_what_its_arrival_tells() -> None:
    (row,) = legs([a_departure(delay=2), an_arrival(90, delay=-4)]).values()
    assert row == {
        "flight_id": "UA1",
        "departed_at": BEGIN,
        "carrier": "UA",
        "origin": "EWR",
        "destination": "IAH",
        "departure_delay_minutes": 2,
        "arrived_at": BEGIN + timedelta(minutes=90),
        "arrival_delay_minutes": -4,
        "gate_to_gate_minutes": 90.0,
    }


@pytest.mark.parametrize(("minutes", "is_its_own"), [(-1, False), (0, True), (_LONGEST, True), (_LONGEST + 1, False)])
def test_an_arrival_counts_within_twenty_hours(minutes: int, is_its_own: bool) -> None:
    (row,) = legs([a_departure(), an_arrival(minutes)]).values()
    assert (row["arrived_at"] is not None) is is_its_own


def test_a_departure_without_an_arrival_is_there_with_nothing_of_it() -> None:
    (row,) = legs([a_departure(), an_arrival(90, flight_id="UA2")]).values()
    assert (row["arrived_at"], row["arrival_delay_minutes"], row["gate_to_gate_minutes"]) == (None, None, None)


def test_the_closing_departures_are_not_over() -> None:
    backlog = Backlog([a_departure(), an_arrival(90)], [a_departure(3 * 24 * 60, flight_id="closing-0")])
    assert JOIN.expected(backlog).keys() == {"UA1"}

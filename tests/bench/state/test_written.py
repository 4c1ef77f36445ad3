"""How what was written is compared with what it must be."""

from __future__ import annotations

from tests.bench.state.workloads.examples import a_departure
from tests.bench.state.workloads.windows import windows
from tests.bench.state.written import wrong_fields


def test_a_field_that_differs_is_named() -> None:
    (row,) = windows([a_departure(delay=3)], is_final=True).values()
    assert wrong_fields(row, {**row}) == ""
    assert wrong_fields(row, {**row, "delay_mean_minutes": 3.0 + 1e-12}) == ""
    assert wrong_fields(row, {**row, "departures": 2}) == "departures is 2, not 1"
    assert wrong_fields(row, {**row, "is_final": None}) == "is_final is None, not True"

"""What the columns of raw records say of pairs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from services.audit.declared.joins import Join
from services.audit.records.groups import NEVER
from services.audit.records.pairs import Halves

_HOUR = 60


def _halves(slot_minutes: int | None, side: int, keys: list[str | None], times: list[datetime]) -> Halves:
    told: dict[str, Any] = {
        "how": "inner",
        "equal": {"depot": "station"},
        "apart": {"least_minutes": -_HOUR, "most_minutes": _HOUR},
        "slot_minutes": slot_minutes,
        "first": {"fields": []},
        "second": {"fields": []},
    }
    columns = {("depot", "station")[side]: pa.array(keys), "at": pa.array(times, pa.timestamp("ms", "UTC"))}
    return Halves.of_rows(Join.model_validate(told).brings(side), "at", None, columns, np.full(len(keys), True))


def _at(year: int, hour: int, minute: int, milliseconds: int = 0) -> datetime:
    return datetime(year, 1, 1, hour, minute, 59 if milliseconds else 0, milliseconds * 1000, tzinfo=UTC)


@pytest.mark.parametrize("year", [2013, 1969])
def test_times_are_equal_if_they_lie_in_one_slot_and_nothing_equals_a_null(year: int) -> None:
    times = [_at(year, 10, 0), _at(year, 10, 59, 999), _at(year, 11, 0), _at(year, 9, 59, 999)]
    first = _halves(_HOUR, 0, ["a", "a", "a", "a"], times)
    second = _halves(_HOUR, 1, ["a", "b", None], [_at(year, 10, 30)] * 3)
    assert (first.by == second.by[0]).tolist() == [True, True, False, False]
    assert second.by[1] not in first.by
    assert second.by[2] == 0
    assert NEVER not in first.of


def test_without_slots_the_fields_alone_are_equal() -> None:
    times = [_at(2013, 10, 0), _at(2013, 11, 0)]
    assert len(set(_halves(None, 0, ["a", "a"], times).by.tolist())) == 1
    assert len(set(_halves(_HOUR, 0, ["a", "a"], times).by.tolist())) == 2

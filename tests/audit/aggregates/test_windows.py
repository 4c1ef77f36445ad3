"""Counting records in windows all at once."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from services.audit.aggregates.windows import covered, inside, instant_text

counted = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 20)), max_size=30)
windows = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 20), st.integers(1, 9)), max_size=12)


@given(counted, windows)
def test_counting_all_at_once_is_counting_one_by_one(
    events: list[tuple[int, int]], groups: list[tuple[int, int, int]]
) -> None:
    by, of = np.array([each[0] for each in events], np.uint64), np.array([each[1] for each in events], np.int64)
    group_by = np.array([each[0] for each in groups], np.uint64)
    begins = np.array([each[1] for each in groups], np.int64)
    ends = np.array([each[1] + each[2] for each in groups], np.int64)
    belongs = [[who == g and b <= when < b + n for g, b, n in groups] for who, when in events]
    assert covered(by, of, group_by, begins, ends).tolist() == [any(each) for each in belongs]
    assert (
        inside(by, of, group_by, begins, ends).tolist() == [sum(each) for each in zip(*belongs, strict=True)]
        or not events
    )


def test_an_instant_that_no_calendar_has_is_told_all_the_same() -> None:
    # The window of an event of the year 1 may begin before it.
    assert instant_text(-62_135_596_800_000_000) == "0001-01-01T00:00:00Z"
    assert instant_text(-62_135_596_800_000_001) == "-62135596800000001 µs since 1970"

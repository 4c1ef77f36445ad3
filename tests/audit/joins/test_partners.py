"""Partners, against a search one by one."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from services.audit.joins.partners import Partners, picked

_RECORDS = st.lists(st.tuples(st.integers(0, 3), st.integers(-20, 20)), max_size=30)


@given(_RECORDS, _RECORDS, st.integers(-10, 10), st.integers(0, 15), st.frozensets(st.integers(0, 30)))
def test_partners_are_those_that_one_finds_one_by_one(
    first: list[tuple[int, int]], second: list[tuple[int, int]], least: int, wide: int, chosen: frozenset[int]
) -> None:
    rows = np.array([row for row in range(len(second)) if row in chosen], np.int64)
    by = np.array([each[0] for each in second], np.uint64)
    of = np.array([each[1] for each in second], np.int64)
    own = np.array([each[0] for each in first], np.uint64)
    at = np.array([each[1] for each in first], np.int64)
    partners = Partners(by, of, rows)
    begin, end = partners.between(own, at + least, at + least + wide)
    for (key, minute), low, high in zip(first, begin.tolist(), end.tolist(), strict=True):
        expected = [
            row
            for row in rows.tolist()
            if key != 0 and second[row][0] == key and least <= second[row][1] - minute <= least + wide
        ]
        assert sorted(partners.rows[low:high].tolist()) == expected


def test_of_no_values_there_are_zeros() -> None:
    assert picked(np.zeros(0, np.int64), np.array([0, 0])).tolist() == [0, 0]

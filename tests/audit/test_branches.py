"""What one pipeline writes to several topics, compared among these."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from services.audit.hops.branches import Branches
from services.audit.records.window import Span, Window
from services.audit.values.place import Codes, code, coordinate

LOW, END = 2, 12
sources = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 15)), max_size=12)


def places(found: list[tuple[int, int]]) -> Codes:
    return np.array([code(*each) for each in found], np.int64)


@given(sources, sources, sources)
def test_each_record_of_the_window_that_is_in_two_topics_is_found_once(
    one: list[tuple[int, int]], two: list[tuple[int, int]], three: list[tuple[int, int]]
) -> None:
    """Partition and offset of the raw record of each record; some lie outside of the window."""
    window = Window("raw", {partition: Span(LOW, 0, END, 0) for partition in (0, 1)})
    there = [(partition, offset) for partition in (0, 1) for offset in range(LOW, END)]
    branches = Branches(window, places(there), {"a": places(one), "b": places(two), "c": places(three)})
    found = list(branches.findings())
    expected = {
        coordinate("raw", code(*each)) for each in there if sum(each in topic for topic in (one, two, three)) > 1
    }
    assert sorted(each.coordinate for each in found) == sorted(expected)
    assert {each.kind for each in found} <= {"doubled"}
    assert [tally.records for tally in branches.tallies.values()] == [END - LOW] * 2


def test_a_finding_names_the_topics() -> None:
    window = Window("raw", {0: Span(0, 0, END, 0)})
    made = {"a": places([(0, 1), (0, 1)]), "b": places([(0, 2)]), "c": places([(0, 1)])}
    (found,) = Branches(window, places([(0, 1), (0, 2)]), made).findings()
    assert (found.hop, found.coordinate) == ("raw → one of 3", "raw/0/1")
    assert found.detail == "in a and c: a branch writes it to one of them"

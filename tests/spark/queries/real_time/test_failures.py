"""When a query that fails again and again ends its process."""

from __future__ import annotations

import pytest

from spark.queries.real_time.failures import Failures, stuck
from spark.runtime.errors import QueryFailed


@pytest.fixture
def failures() -> Failures:
    return Failures("q")


def fail(failures: Failures, times: int) -> list[float]:
    return [failures.pause_seconds("an error") for _ in range(times)]


def test_a_partition_that_is_stuck_ends_it_whatever_the_others_do(failures: Failures) -> None:
    for start in range(0, 50, 10):
        failures.started({0: start, 1: 7})
        failures.move_to({0: start + 10, 1: 7}, {0: 1_000, 1: 8})
        fail(failures, 1)
    with pytest.raises(QueryFailed, match="query q failed 6 times in a row: an error"):
        fail(failures, 1)


@pytest.mark.parametrize("idle_end", [7, 6])
def test_a_partition_that_has_nothing_to_take_is_not_stuck(failures: Failures, idle_end: int) -> None:
    pauses = fail(failures, 5)
    assert pauses == sorted(pauses)
    failures.started({0: 3, 1: 7})
    failures.move_to({0: 4, 1: 7}, {0: 1_000, 1: idle_end})
    assert fail(failures, 5) == pauses


def test_that_nothing_came_is_no_progress(failures: Failures) -> None:
    fail(failures, 5)
    failures.started({0: 3})
    failures.move_to({0: 3}, {0: 3})
    with pytest.raises(QueryFailed):
        fail(failures, 1)


def test_of_many_partitions_that_seldom_get_a_record_none_is_stuck() -> None:
    """At each look, one has just got a record that nobody can have taken yet."""
    told, due, ends = {p: 0 for p in range(100)}, {p: 0 for p in range(100)}, {p: 0 for p in range(100)}
    for look in range(300):
        positions = dict(ends)
        ends[look % 100] += 1
        assert not stuck(positions, told, due)
        told, due = positions, dict(ends)
    assert stuck(told, told, due) == {99}


def test_an_intervals_end_is_progress(failures: Failures) -> None:
    fail(failures, 5)
    failures.forget()
    fail(failures, 5)

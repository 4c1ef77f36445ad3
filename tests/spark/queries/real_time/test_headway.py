"""Which partitions stand still, and when a query that fails again and again ends its process."""

from __future__ import annotations

import pytest

from spark.queries.real_time.headway import Headway
from spark.runtime.errors import QueryFailed


@pytest.fixture
def headway() -> Headway:
    return Headway("q")


def fail(headway: Headway, times: int) -> list[float]:
    return [headway.pause_seconds("an error") for _ in range(times)]


def test_a_partition_that_is_stuck_ends_it_whatever_the_others_do(headway: Headway) -> None:
    ends = {0: 1_000, 1: 8}
    for start in range(0, 50, 10):
        headway.start({0: start, 1: 7})
        headway.move_to({0: start + 10, 1: 7}, ends, 0.0)
        fail(headway, 1)
    with pytest.raises(QueryFailed, match="query q failed 6 times in a row: an error"):
        fail(headway, 1)


@pytest.mark.parametrize("idle_end", [7, 6])
def test_a_partition_that_has_nothing_to_take_is_not_stuck(headway: Headway, idle_end: int) -> None:
    pauses = fail(headway, 5)
    assert pauses == sorted(pauses)
    ends = {0: 1_000, 1: idle_end}
    headway.start({0: 3, 1: 7})
    headway.move_to({0: 3, 1: 7}, ends, 0.0)
    headway.move_to({0: 4, 1: 7}, ends, 1.0)
    assert fail(headway, 5) == pauses


def test_that_nothing_came_is_no_progress(headway: Headway) -> None:
    fail(headway, 5)
    headway.start({0: 3})
    headway.move_to({0: 3}, {0: 3}, 0.0)
    headway.move_to({0: 3}, {0: 3}, 1.0)
    with pytest.raises(QueryFailed):
        fail(headway, 1)


def test_of_many_partitions_that_seldom_get_a_record_none_stands_still(headway: Headway) -> None:
    """At each look, one has just got a record that nobody can have taken yet."""
    ends = {partition: 0 for partition in range(100)}
    headway.start(dict(ends))
    for look in range(300):
        positions = dict(ends)
        ends[look % 100] += 1
        headway.move_to(positions, ends, look)
        assert not headway.still_since(look)
    headway.move_to(positions, ends, 300)
    assert headway.still_since(300) == {99: 2}


def test_a_partition_stands_still_from_the_moment_at_which_that_was_seen_until_it_moves(headway: Headway) -> None:
    headway.start({0: 5, 1: 5})
    for now in range(4):
        # Of the end that was told nothing is known later: it still tells that there is something to take.
        headway.move_to({0: 5, 1: 5 + now}, {0: 9, 1: 9} if now == 0 else {1: 9}, now)
    assert headway.still_since(0) == {}
    assert headway.still_since(1) == {0: 5}
    headway.move_to({0: 6, 1: 8}, {}, 4)
    assert headway.still_since(10) == {1: 8}


def test_a_query_keeps_up_that_has_taken_enough_and_has_little_left(headway: Headway) -> None:
    headway.start({0: 100, 1: 5})
    assert not headway.keeps_up(10)
    headway.move_to({0: 109, 1: 5}, {0: 109, 1: 5}, 0.0)
    assert not headway.keeps_up(10)
    headway.move_to({0: 112, 1: 5}, {0: 114, 1: 7}, 1.0)
    assert not headway.keeps_up(10)
    headway.move_to({0: 114, 1: 6}, {0: 115, 1: 8}, 2.0)
    assert headway.keeps_up(10)


def test_each_record_counts_once_over_restarts(headway: Headway) -> None:
    assert headway.start({0: 5, 1: 5}) == 0
    assert headway.move_to({0: 7, 1: 5}, {}, 0.0) == 2
    # What the query wrote after its last commit. A position may be told that is older.
    assert headway.start({0: 8, 1: 4, 2: 3}) == 4
    assert headway.move_to({0: 9, 1: 5, 2: 3}, {}, 1.0) == 2


def test_an_intervals_end_is_progress(headway: Headway) -> None:
    fail(headway, 5)
    headway.forget_failures()
    fail(headway, 5)

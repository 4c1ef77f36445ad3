"""What the campaign finds in the groups of an aggregate."""

from __future__ import annotations

from typing import Any

import pytest

from spark.pipelines import load
from tests.faults.groups import Groups
from tests.faults.stage.cast import AGGREGATES

_KEY = "EWR/2013-01-01T10:15:00Z"
_LATER = "EWR/2013-01-01T10:30:00Z"
_MEMBERS = {_KEY: ["raw/0/0", "raw/0/1", "raw/1/0"]}
_ENDS = {0: 2, 1: 1}


def a_group(count: int, key: str = _KEY) -> dict[str, Any]:
    return {"window_id": key, "departures": count}


@pytest.fixture(params=AGGREGATES)
def groups(request: pytest.FixtureRequest) -> Groups:
    return Groups(load(request.param))


def test_a_group_that_counts_what_belongs_to_it_is_right(groups: Groups) -> None:
    assert groups.take(f"{_KEY}/1f3c9a2e/0", a_group(2)) == []
    assert groups.take_late("raw/1/0") == []
    assert groups.compared(_MEMBERS, {}, _ENDS) == ([], [])


@pytest.mark.parametrize(("count", "lost", "doubled"), [(2, 1, 0), (3, 0, 0), (4, 0, 1)])
def test_what_is_lost_or_counted_twice_is_found(groups: Groups, count: int, lost: int, doubled: int) -> None:
    groups.take(f"{_KEY}/1f3c9a2e/0", a_group(count))
    found = groups.compared(_MEMBERS, {}, _ENDS)
    assert [*map(len, found)] == [lost, doubled]


def test_what_came_since_may_be_counted_and_need_not_be(groups: Groups) -> None:
    groups.take(f"{_KEY}/1f3c9a2e/0", a_group(2))
    assert groups.compared(_MEMBERS, {}, {0: 2, 1: 0}) == ([], [])
    assert groups.compared(_MEMBERS, {}, {0: 1, 1: 0}) == ([], [])


def test_a_batch_that_is_written_again_is_found(groups: Groups) -> None:
    groups.take(f"{_KEY}/1f3c9a2e/0", a_group(3))
    assert groups.take(f"{_KEY}/1f3c9a2e/0", a_group(3)) == [f"the group {_KEY}/1f3c9a2e/0 is there again"]


def test_a_late_record_that_comes_twice_is_found(groups: Groups) -> None:
    groups.take_late("raw/1/0")
    assert groups.take_late("raw/1/0") == ["raw/1/0 is late twice"]


def test_a_window_that_is_over_and_was_never_written_is_found(groups: Groups) -> None:
    members = _MEMBERS | {_LATER: ["raw/0/2"]}
    groups.take(f"{_LATER}/1f3c9a2e/1", a_group(1, _LATER))
    groups.compared(members, {}, {0: 3, 1: 1})
    lost, _ = groups.compared(members, {}, {0: 3, 1: 1})
    assert lost == [f"{groups.topic}: the group {_KEY} counts 0 of 3"]


def test_a_rebuild_may_count_what_was_late_before(groups: Groups) -> None:
    groups.take(f"{_KEY}/1f3c9a2e/0", a_group(2))
    groups.take_late("raw/1/0")
    assert groups.take(f"{_KEY}/aaaaaaaa/0", a_group(3)) == []
    assert groups.compared(_MEMBERS, {}, _ENDS) == ([], [])

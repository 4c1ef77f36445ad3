"""Who takes part, and what is told of several runs."""

from __future__ import annotations

import pytest

from tests.bench.measuring.hop import Hop
from tests.bench.measuring.meter import Usage
from tests.bench.peers.errors import UnknownContender
from tests.bench.state.contender import CONTENDERS, chosen
from tests.bench.state.run import WORKLOADS, Turn, medians, run


def a_turn(contender: str, seconds: float, workload: str = "windows") -> Turn:
    """1,000 events of 2,000 are through after half the time, when three quarters of the cost are made."""
    used = 2 * seconds
    hop = Hop(
        f"{workload}, {contender}",
        2000,
        {contender: Usage(used - 2, 100.0), "broker": Usage(2.0, 50.0)},
        [(0.0, 0), (seconds / 2, 1000), (seconds, 2000)],
        [0.0, used * 0.75, used],
    )
    return Turn(workload, contender, hop, 30, 10)


def test_all_take_part_unless_some_are_named() -> None:
    assert chosen([]) == list(CONTENDERS)
    assert [each.name for each in chosen(["flink", "headrace"])] == ["headrace", "flink"]


def test_an_unknown_name_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(UnknownContender, match="nobody is called storm: choose of headrace, flink, "):
        chosen(["storm"])
    with pytest.raises(UnknownContender, match="no workload is called joins: choose of windows, final-windows"):
        run(["joins"], 1000, 1, 1, [], print)


def test_nobody_writes_into_the_topic_of_another() -> None:
    targets = [each.target(workload, turn) for turn, each in enumerate(CONTENDERS) for workload in WORKLOADS]
    assert len({*targets}) == len(targets)


def test_medians_are_told_and_set_beside_each_other() -> None:
    turns = [*(a_turn("headrace", seconds) for seconds in (10, 90, 20)), a_turn("flink", 40)]
    ours, theirs, ratio = medians(turns)
    assert ours.startswith("windows, headrace, median of 3: 100 events/s sustained, 100 with the start; ")
    assert "first fifth 10000.0, start included 20000.0" in ours
    assert theirs.startswith("windows, flink, median of 1: 50 events/s sustained, ")
    assert ratio == (
        "windows, headrace / flink, after the first fifth and with the start: 2.00 and 2.00 of its events/s, "
        "0.50 and 0.50 of its CPU-seconds per million"
    )


def test_workloads_are_told_apart() -> None:
    lines = list(medians([a_turn("headrace", 10), a_turn("headrace", 20, "final-windows")]))
    assert [line.partition(", headrace")[0] for line in lines] == ["windows", "final-windows"]

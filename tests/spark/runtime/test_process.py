"""When a process of Spark's is unhealthy, and how long its intervals last."""

from __future__ import annotations

import pytest

from spark.runtime.mode import Mode
from spark.runtime.process import stalled_after
from spark.runtime.settings import LiveSettings, SparkSettings


@pytest.mark.parametrize(
    ("mode", "interval_seconds", "expected"),
    [
        (Mode.REAL_TIME, 5.0, 125.0),
        (Mode.REAL_TIME, 3600.0, 240.0),
        (Mode.EXACTLY_ONCE, 3600.0, 120.0),
        (Mode.AT_LEAST_ONCE, 3600.0, 120.0),
        # The lake writer has no mode.
        (None, 3600.0, 120.0),
    ],
)
def test_in_real_time_mode_an_interval_of_two_minutes_at_most_may_pass_besides(
    mode: Mode | None, interval_seconds: float, expected: float
) -> None:
    settings = SparkSettings(live=LiveSettings(interval_seconds=interval_seconds))
    assert stalled_after(settings, mode) == expected


@pytest.mark.parametrize(("seconds", "of_others"), [(3600.0, 120.0), (5.0, 5.0)])
def test_a_pipeline_whose_positions_only_an_intervals_end_tells_has_short_ones(
    seconds: float, of_others: float
) -> None:
    live = LiveSettings(interval_seconds=seconds)
    assert live.interval(one_of_each=True) == seconds
    assert live.interval(one_of_each=False) == of_others

"""What is told of a load's delays."""

from __future__ import annotations

from dataclasses import replace

from tests.bench.measuring.delays import Delays
from tests.bench.measuring.latency import Latency
from tests.bench.measuring.meter import Machine

# A record each second, and a pause of 400 ms every ten from the 25th on.
_DELAYS = Delays([(number, number * 10**9, (400 if number % 10 == 5 else 1) * 10**6) for number in range(60)])
_LATENCY = Latency("any", 1, 60.0, None, False, 61, {}, Machine(2, 0.5, 0.0), _DELAYS, Delays())


def test_the_pause_at_an_intervals_end_is_told_only_where_ends_are_looked_for() -> None:
    assert "interval's end, median" not in _LATENCY.figures()
    assert replace(_LATENCY, interval_seconds=10.0).figures()["interval's end, median"] == 400.0
    assert "interval's end, median" not in replace(_LATENCY, interval_seconds=3600.0).figures()


def test_what_is_kept_tells_the_interval_and_whether_things_changed() -> None:
    kept = replace(_LATENCY, changing=True).kept()
    assert (kept["name"], kept["interval_seconds"], kept["changes"]) == ("any", None, True)


def test_a_record_that_never_came_is_lost_and_one_that_came_again_is_repeated() -> None:
    again = Delays([*_DELAYS.samples, _DELAYS.samples[0]])
    assert (_LATENCY.lost, _LATENCY.repeated) == (1, 0)
    assert (replace(_LATENCY, enriched=again).lost, replace(_LATENCY, enriched=again).repeated) == (1, 1)

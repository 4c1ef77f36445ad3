"""What the benchmarks say of delays is what the samples say."""

from __future__ import annotations

import pytest

from tests.bench.measuring.delays import Delays, as_text, percentiles

_MS = 1_000_000


def _delays(*samples: tuple[float, float]) -> Delays:
    """Of (second of sending, delay in ms)."""
    return Delays([(number, int(second * 1e9), int(delay * _MS)) for number, (second, delay) in enumerate(samples)])


def test_a_percentile_is_a_value_that_so_many_do_not_exceed() -> None:
    found = percentiles(float(value) for value in range(1, 1001))
    assert found == {"p50": 501.0, "p90": 901.0, "p99": 991.0, "p99.9": 1000.0, "max": 1000.0}
    assert as_text(found).startswith("p50 501.0, p90 901.0")


def test_the_first_twenty_seconds_are_in_no_figure() -> None:
    delays = _delays((0, 900), (19.9, 800), (20, 3), (30, 5))
    assert delays.figures()["max"] == 5.0
    assert delays.worst_ms(30)[:1] == [900.0]


def test_a_pause_is_the_worst_about_each_intervals_end() -> None:
    delays = _delays((0, 1), (21, 2), (25, 400), (31, 5), (36, 300), (43, 4), (46, 200))
    assert delays.pauses_ms(47, 10) == pytest.approx([400.0, 300.0, 200.0])
    # A load that ends before the third end, and one without a whole interval.
    assert delays.pauses_ms(44, 10) == pytest.approx([400.0, 300.0])
    assert delays.pauses_ms(47, 30) == []


def test_a_record_that_comes_twice_is_one() -> None:
    delays = Delays([(1, 0, 1), (2, 0, 1), (1, 0, 2)])
    assert (delays.different, len(delays.samples)) == (2, 3)


def test_delays_may_be_counted_from_other_moments() -> None:
    delays = _delays((20, 9), (21, 7)).since({0: 20 * 1000 * _MS + 5 * _MS, 1: 21 * 1000 * _MS + 6 * _MS})
    assert [delay / _MS for _, _, delay in delays.samples] == [4.0, 1.0]

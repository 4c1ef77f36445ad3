"""All departures of 2013 in windows, out of pipelines that were killed three times on their way, against windows in plain Python (`pytest -m long`)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from services.audit.hops.hop import Hop
from spark.pipeline import Pipeline
from spark.pipelines.delays_by_origin import delays_by_origin
from spark.pipelines.final_delays_by_origin import final_delays_by_origin
from tests.spark.aggregates.percentile import percentile
from tests.spark.auditor import noted
from tests.spark.year.events import Event
from tests.spark.year.passage import Passage

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

_LENGTH = timedelta(minutes=15)


def _begins_at(flight: Event) -> datetime:
    at: datetime = flight["departed_at"]
    return at.replace(minute=at.minute // 15 * 15)


def _ends_at(flight: Event) -> datetime:
    return _begins_at(flight) + _LENGTH


def _windows(flights: Sequence[Event], *, is_final: bool) -> dict[str, Event]:
    """By id of the window."""
    delays = defaultdict(list)
    for flight in flights:
        delays[flight["origin"], _begins_at(flight)].append(flight["departure_delay_minutes"])
    found: dict[str, Event] = {}
    for (origin, begins_at), each in delays.items():
        window_id = f"{origin}/{begins_at:%Y-%m-%dT%H:%M:00Z}"
        found[window_id] = {
            "window_id": window_id,
            "origin": origin,
            "begins_at": begins_at,
            "ends_at": begins_at + _LENGTH,
            "departures": len(each),
            "delay_mean_minutes": sum(each) / len(each),
            "delay_p95_minutes": percentile(sorted(each), 0.95),
            "is_final": is_final,
        }
    return found


def _check(passage: Passage, newest: dict[str, Event], expected: dict[str, Event], late: list[Any]) -> None:
    assert newest == expected
    passage.check_late(late)
    assert sum(each["departures"] for each in newest.values()) + len(late) == len(passage.sent) >= 328_521
    assert newest["EWR/2013-01-01T10:15:00Z"]["begins_at"] == datetime(2013, 1, 1, 10, 15, tzinfo=UTC)


def test_every_window_of_a_year_is_right_though_it_was_killed_three_times(
    passed: Callable[[Pipeline], Passage],
) -> None:
    passage = passed(delays_by_origin)
    kept, late = passage.divided(_ends_at)
    newest = {event["window_id"]: event for event in passage.written()}
    _check(passage, newest, _windows([each.event for each in kept], is_final=False), late)
    report = passage.audit(Hop.AGGREGATES)
    assert noted(report, "groups counted again") == len(newest)


def test_every_window_of_a_year_comes_once_though_it_was_killed_three_times(
    passed: Callable[[Pipeline], Passage],
) -> None:
    passage = passed(final_delays_by_origin)
    kept, late = passage.divided(_ends_at)
    windows = _windows([each.event for each in kept], is_final=True)
    is_open = {name for name, each in windows.items() if each["ends_at"] > passage.over}
    written = passage.written()
    newest = {event["window_id"]: event for event in written}
    assert len(written) == len(newest)
    assert len(is_open) == 1
    _check(passage, {**newest, **{name: windows[name] for name in is_open}}, windows, late)
    assert not newest.keys() & is_open
    report = passage.audit(Hop.AGGREGATES)
    assert noted(report, "groups counted again") == len(newest)

"""All departures and cancellations of 2013 through `punctuality_by_origin`, killed three times on its way, against windows in plain Python (`pytest -m long`)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

import pytest

from services.audit.hops.hop import Hop
from spark.pipeline import Pipeline
from spark.pipelines.punctuality_by_origin import punctuality_by_origin
from tests.spark.aggregates.percentile import percentile
from tests.spark.year.events import CANCELLED, Sent
from tests.spark.year.passage import Passage

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

_WINDOW, _SLIDE = timedelta(hours=1), timedelta(minutes=5)
_WINDOWS = _WINDOW // _SLIDE
"""That an event lies in."""

Counted = Mapping[tuple[str, datetime], list[int | None]]
"""The delays of each window, by origin and begin; None is that of what was cancelled."""


def _begins(sent: Sent) -> list[datetime]:
    """Those of its windows."""
    field = "scheduled_departure_at" if sent.topic == CANCELLED else "departed_at"
    at: datetime = sent.event[field].replace(second=0, microsecond=0)
    last = at - timedelta(minutes=at.minute % 5)
    return [last - number * _SLIDE for number in range(_WINDOWS)]


def _counted(passage: Passage) -> tuple[Counted, list[Sent]]:
    """And the late records: those that miss a window."""
    counted, late = defaultdict(list), []
    for batch in passage.batches:
        for each in batch.sent:
            begins = _begins(each)
            still_open = [begin for begin in begins if begin + _WINDOW > batch.late]
            late += [each] if len(still_open) < len(begins) else []
            for begin in still_open:
                counted[each.event["origin"], begin].append(each.event.get("departure_delay_minutes"))
    return counted, late


def _groups(counted: Counted) -> dict[str, dict[str, Any]]:
    """What is written of each, by its key."""
    found = {}
    for (origin, begin), members in counted.items():
        delays = sorted(each for each in members if each is not None)
        window_id = f"{origin}/{begin:%Y-%m-%dT%H:%M:%SZ}"
        found[window_id] = {
            "window_id": window_id,
            "origin": origin,
            "begins_at": begin,
            "ends_at": begin + _WINDOW,
            "departures": len(delays),
            "cancellations": len(members) - len(delays),
            "cancelled_share": (len(members) - len(delays)) / len(members),
            "delay_mean_minutes": sum(delays) / len(delays) if delays else None,
            "delay_p95_minutes": percentile(delays, 0.95) if delays else None,
            "is_final": False,
        }
    return found


def test_every_window_of_a_year_counts_what_left_and_what_did_not_though_it_was_killed(
    passed: Callable[[Pipeline], Passage],
) -> None:
    passage = passed(punctuality_by_origin)
    counted, late = _counted(passage)
    expected, newest = _groups(counted), {each["window_id"]: each for each in passage.written()}
    assert newest.keys() == expected.keys()
    assert [each for each in expected if newest[each] != expected[each]] == []
    assert sum(each["cancellations"] for each in newest.values()) > 90_000
    passage.check_late(late)
    passage.audit(Hop.AGGREGATES)

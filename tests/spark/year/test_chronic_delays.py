"""All departures of 2013 through `chronic_delays`, killed three times on its way, against plain Python (`pytest -m long`)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any

import pytest

from services.audit.hops.hop import Hop
from spark.pipeline import Pipeline
from spark.pipelines.chronic_delays import chronic_delays
from tests.spark.auditor import noted
from tests.spark.year.events import Sent
from tests.spark.year.passage import Passage

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

_OWN = ("flight_id", "tail_number", "carrier", "origin", "destination", "departed_at", "departure_delay_minutes")


def _third_late(flown: Sequence[Sent]) -> Iterator[dict[str, Any]]:
    """Of one aircraft, in the order of its departures, those of one instant by partition and offset."""
    in_a_row, mean, last = 0, 0.0, None
    for each in sorted(flown, key=lambda each: (each.event["departed_at"], each.partition, each.offset)):
        at, delay = each.event["departed_at"], each.event["departure_delay_minutes"]
        if last is None or at - last > timedelta(days=3):
            in_a_row, mean = 0, float(delay)
        in_a_row, mean, last = in_a_row + 1 if delay > 15 else 0, mean + (delay - mean) / 4, at
        if in_a_row == 3:
            yield {name: each.event[name] for name in _OWN} | {"late_in_a_row": 3, "delay_mean_minutes": mean}


def test_every_third_late_leg_of_a_year_is_told_once_though_it_was_killed(
    passed: Callable[[Pipeline], Passage],
) -> None:
    passage = passed(chronic_delays)
    kept, late = passage.divided()
    aircraft = defaultdict(list)
    for each in kept:
        if each.event["tail_number"] is not None and each.event["departed_at"] <= passage.over:
            aircraft[each.event["tail_number"]].append(each)
    expected = [told for flown in aircraft.values() for told in _third_late(flown)]
    written = passage.written()
    assert len(expected) > 1_000
    # A flight that was sent twice may be the third late leg of its own aircraft once only.
    assert {event["flight_id"]: event for event in written} == {told["flight_id"]: told for told in expected}
    assert len(written) == len(expected)
    passage.check_late(late)
    report = passage.audit(Hop.SEQUENCES)
    assert noted(report, "of which a record was made") == len(expected)

"""All departures of 2013 with their arrivals and their weather, joined by pipelines that were killed three times on their way, against pairs in plain Python (`pytest -m long`)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from services.audit.hops.hop import Hop
from spark.pipeline import Pipeline
from spark.pipelines.departure_weather import departure_weather
from spark.pipelines.flight_legs import flight_legs
from tests.spark.auditor import noted
from tests.spark.pipelines.test_joins import HOUR, hour_of, leg, with_weather
from tests.spark.year.events import DEPARTED, Event, Sent
from tests.spark.year.passage import Passage

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

Pairs = list[tuple[Event, list[Event]]]
"""Each departure with what belongs to it."""


def _paired(kept: Sequence[Sent], of_departure: Callable[[Event], Any], of_other: Callable[[Event], Any]) -> Pairs:
    """Those of which these give the same."""
    others = defaultdict(list)
    for each in kept:
        if each.topic != DEPARTED:
            others[of_other(each.event)].append(each.event)
    return [(each.event, others[of_departure(each.event)]) for each in kept if each.topic == DEPARTED]


def _check(passage: Passage, pairs: Pairs, late: list[Sent], record: Callable[[Event, Event | None], Event]) -> None:
    expected = [record(one, other) for one, others in pairs for other in [*others] or (None,)]
    assert _counted(passage.written()) == _counted(expected)
    passage.check_late(late)
    report = passage.audit(Hop.JOINS)
    with_pairs = sum(bool(others) for _, others in pairs)
    assert noted(report, "with pairs") == with_pairs
    assert noted(report, "without a pair that must be there") == len(pairs) - with_pairs > 0


def _counted(records: Sequence[Event]) -> Counter[tuple[tuple[str, Any], ...]]:
    return Counter(tuple(sorted(each.items())) for each in records)


def test_every_flight_of_a_year_has_its_arrival_though_it_was_killed(passed: Callable[[Pipeline], Passage]) -> None:
    passage = passed(flight_legs)
    kept, late = passage.divided()
    pairs = [
        (departure, [each for each in arrivals if 0 <= (each["arrived_at"] - departure["departed_at"]) / HOUR <= 20])
        for departure, arrivals in _paired(kept, lambda one: one["flight_id"], lambda other: other["flight_id"])
    ]
    _check(passage, pairs, late, leg)


def test_every_departure_of_a_year_has_the_weather_of_its_hour_though_it_was_killed(
    passed: Callable[[Pipeline], Passage],
) -> None:
    passage = passed(departure_weather)
    kept, late = passage.divided()
    pairs = _paired(kept, hour_of, lambda other: (other["station"], other["observed_at"]))
    _check(passage, pairs, late, with_weather)
    if passage.is_in_order:
        assert sum(not others for _, others in pairs) == 1564

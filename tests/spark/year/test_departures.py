"""All departures of 2013, each once, and those of long flights, out of pipelines that were killed three times on their way, against plain Python (`pytest -m long`)."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from contracts.definitions.catalog import load_catalog
from services.audit.hops.hop import Hop
from spark.pipeline import Pipeline
from spark.pipelines.departures_once import departures_once
from spark.pipelines.long_haul_departures import long_haul_departures
from tests.spark.auditor import looked_at, noted
from tests.spark.year.passage import Passage

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]


def _fields(topic: str) -> list[str]:
    return [field["name"] for field in json.loads(load_catalog().schema(topic))["fields"]]


def test_every_departure_of_a_year_comes_out_once_though_it_was_killed(passed: Callable[[Pipeline], Passage]) -> None:
    passage = passed(departures_once)
    kept, late = passage.divided()
    fields = _fields(departures_once.target)
    expected = {each.event["flight_id"]: {name: each.event[name] for name in fields} for each in kept}
    written = passage.written()
    assert len(written) == len(expected)
    assert {event["flight_id"]: event for event in written} == expected
    passage.check_late(late)
    assert len(kept) == len(expected) if passage.is_in_order else len(kept) > len(expected) > 320_000
    report = passage.audit(Hop.DISTINCT)
    assert noted(report, "let through") == len(expected)
    assert noted(report, "left out, for another record of the event is there") == len(kept) - len(expected)


def test_every_long_flight_of_a_year_comes_out_though_it_was_killed(passed: Callable[[Pipeline], Passage]) -> None:
    passage = passed(long_haul_departures)
    fields = _fields(long_haul_departures.target)
    expected = {
        passage.coordinate(each): {name: each.event[name] for name in fields}
        for each in passage.sent
        if each.event["distance_miles"] >= 2000
    }
    assert len(expected) > 50_000
    assert passage.by_id() == expected
    report = passage.audit(Hop.DERIVED)
    assert looked_at(report, passage.topics.catalog.topic(long_haul_departures.source).name) == len(passage.sent)

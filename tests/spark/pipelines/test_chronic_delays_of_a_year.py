"""All departures of 2013 through `chronic_delays`, some late or out of order, killed on its way, against plain Python (`pytest -m long`)."""

from __future__ import annotations

import os
import random
import signal
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest

from contracts.definitions.catalog import load_catalog
from contracts.servers.registry import Registry
from deploy.local.servers.stack import LocalStack
from services.audit.hops.hop import Hop
from spark.pipelines.chronic_delays import chronic_delays
from spark.runtime.settings import SparkSettings
from tests.spark.auditor import PLATFORM, Auditor, noted
from tests.spark.examples import Topics
from tests.spark.live_query import Dimensions, events, wait_for
from tests.spark.pipelines.year import all_flights, send, taken_in
from tests.spark.queries.test_processes import Place

pytestmark = [pytest.mark.long, pytest.mark.timeout(2400)]

DEPARTED, CHRONIC = chronic_delays.source, chronic_delays.target
_KILLS = 3
_SEED = 20261129
_SHUFFLED = 0.02
_OWN = ("flight_id", "tail_number", "carrier", "origin", "destination", "departed_at", "departure_delay_minutes")

Flight = Mapping[str, Any]


@pytest.fixture
def topics(settings: SparkSettings, registry: Registry) -> Iterator[Topics]:
    with Topics(settings, load_catalog(), registry, names=(DEPARTED, CHRONIC, *PLATFORM)) as made:
        yield made


def _sent(flights: Sequence[Flight]) -> list[Flight]:
    """In the order of their departures, but two in a hundred come up to an hour and a half later: not too late, wherever a batch ends."""
    chance, found = random.Random(_SEED), list[tuple[Any, Flight]]()
    for flight in flights:
        behind = chance.random() * timedelta(minutes=90) if chance.random() < _SHUFFLED else timedelta(0)
        found.append((flight["departed_at"] + behind, flight))
    return [flight for _, flight in sorted(found, key=itemgetter(0))]


def _third_late(flown: Sequence[tuple[Any, int, int, Flight]]) -> Iterator[dict[str, Any]]:
    """Of one aircraft, in the order of its departures, those of one instant by partition and offset."""
    in_a_row, mean, last = 0, 0.0, None
    for at, _, _, flight in sorted(flown, key=itemgetter(0, 1, 2)):
        delay = flight["departure_delay_minutes"]
        if last is None or at - last > timedelta(days=3):
            in_a_row, mean = 0, float(delay)
        in_a_row, mean, last = in_a_row + 1 if delay > 15 else 0, mean + (delay - mean) / 4, at
        if in_a_row == 3:
            yield {name: flight[name] for name in _OWN} | {"late_in_a_row": 3, "delay_mean_minutes": mean}


def test_every_third_late_leg_of_a_year_is_told_once_though_it_was_killed(
    stack: LocalStack, settings: SparkSettings, topics: Topics, published: Dimensions, tmp_path: Path
) -> None:
    sent, chance = _sent(all_flights()), random.Random(_SEED)
    send(topics, sent)
    aircraft = defaultdict(list)
    for number, flight in enumerate(sent):
        if flight["tail_number"] is not None:
            # As they are dealt out to two partitions.
            aircraft[flight["tail_number"]].append((flight["departed_at"], number % 2, number // 2, flight))
    passed = max(flight["departed_at"] for flight in sent) - timedelta(hours=2)
    expected = {
        each["flight_id"]: each
        for flown in aircraft.values()
        for each in _third_late(flown)
        if each["departed_at"] <= passed
    }
    few = {"HEADRACE_LIVE__MAX_OFFSETS_PER_TRIGGER": "8000"}
    deployed = "tests.spark.pipelines.deployed"
    with Place(stack, settings, topics, published, tmp_path) as place:
        for kill in range(_KILLS):
            running = place.start(chronic_delays.name, deployed, **few)
            until = len(sent) * (kill + 1) // (_KILLS + 1) + chance.randrange(8_000)
            wait_for(f"{until} records", lambda until=until: taken_in(chronic_delays, settings, topics) >= until, 600)
            running.kill()
        last = place.start(chronic_delays.name, deployed, **few)
        wait_for("all records", lambda: taken_in(chronic_delays, settings, topics) >= len(sent), 600)
        wait_for("all that are told", lambda: len(events(topics, CHRONIC)) >= len(expected), 200)
        os.killpg(last.process.pid, signal.SIGTERM)
        last.process.wait()
    written = [event for event, _, _ in events(topics, CHRONIC)]
    assert len(expected) > 1_000
    assert len(written) == len(expected)
    assert {event["flight_id"]: event for event in written} == expected
    late = topics.catalog.topic(CHRONIC).late_topic
    assert late is not None
    assert topics.read(late) == []
    report = Auditor(settings, topics, tmp_path, Hop.SEQUENCES)()
    assert report.findings == []
    assert noted(report, "of which a record was made") == len(expected)

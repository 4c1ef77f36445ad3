"""All departures of 2013 through `aircraft_rotations`, killed on its way, against rotations in plain Python (`pytest -m long`)."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest

from contracts.definitions.catalog import load_catalog
from contracts.records.headers import headers_of
from contracts.servers.registry import Registry
from deploy.local.servers.stack import LocalStack
from spark.pipelines.aircraft_rotations import aircraft_rotations
from spark.runtime.settings import SparkSettings
from tests.spark.examples import Topics
from tests.spark.live_query import Dimensions, events, wait_for
from tests.spark.pipelines.year import all_flights, send, taken_in
from tests.spark.queries.test_processes import Place

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

DEPARTED, ROTATIONS = aircraft_rotations.source, aircraft_rotations.target
_KILLS = 2
_SEED = 20261126

Flight = Mapping[str, Any]


@pytest.fixture
def topics(settings: SparkSettings, registry: Registry) -> Iterator[Topics]:
    with Topics(settings, load_catalog(), registry, names=(DEPARTED, ROTATIONS)) as made:
        yield made


def _gap(flight: Flight) -> timedelta:
    return timedelta(hours=8 if flight["origin"] == "JFK" else 6)


def _rotation(legs: Sequence[Flight]) -> dict[str, Any]:
    """Of one aircraft's legs."""
    in_order = sorted((leg["departed_at"], leg["departure_delay_minutes"]) for leg in legs)
    ends_at = max(leg["departed_at"] + _gap(leg) for leg in legs)
    delays = [delay for _, delay in in_order]
    return {
        "rotation_id": f"{legs[0]['tail_number']}/{ends_at:%Y-%m-%dT%H:%M:%SZ}",
        "tail_number": legs[0]["tail_number"],
        "begins_at": in_order[0][0],
        "ends_at": ends_at,
        "legs": len(legs),
        "hours": (in_order[-1][0] - in_order[0][0]).total_seconds() / 3600,
        "delay_first_minutes": delays[0],
        "delay_last_minutes": delays[-1],
        "delay_max_minutes": max(delays),
        "delay_sum_minutes": sum(delays),
        "is_final": True,
    }


def _rotations(flights: Sequence[Flight]) -> list[dict[str, Any]]:
    aircraft = defaultdict(list)
    for flight in sorted(flights, key=itemgetter("departed_at")):
        if flight["tail_number"] is not None:
            aircraft[flight["tail_number"]].append(flight)
    found = []
    for flown in aircraft.values():
        legs, ends_at = [flown[0]], flown[0]["departed_at"] + _gap(flown[0])
        for flight in flown[1:]:
            if flight["departed_at"] > ends_at:
                found.append(_rotation(legs))
                legs = []
            legs.append(flight)
            ends_at = max(ends_at, flight["departed_at"] + _gap(flight))
        found.append(_rotation(legs))
    return found


def test_every_rotation_of_a_year_is_right_though_it_was_killed(
    stack: LocalStack, settings: SparkSettings, topics: Topics, published: Dimensions, tmp_path: Path
) -> None:
    sent, chance = all_flights(), random.Random(_SEED)
    send(topics, sent)
    few = {"HEADRACE_LIVE__MAX_OFFSETS_PER_TRIGGER": "8000"}
    deployed = "tests.spark.pipelines.deployed"
    with Place(stack, settings, topics, published, tmp_path) as place:
        for kill in range(_KILLS):
            running = place.start(aircraft_rotations.name, deployed, **few)
            until = len(sent) * (kill + 1) // (_KILLS + 1) + chance.randrange(8_000)
            wait_for(
                f"{until} records", lambda until=until: taken_in(aircraft_rotations, settings, topics) >= until, 400
            )
            running.kill()
        last = place.start(aircraft_rotations.name, deployed, **few)
        expected = _rotations(sent)
        over_at = max(flight["departed_at"] for flight in sent) - timedelta(hours=2)
        over = {each["rotation_id"]: each for each in expected if each["ends_at"] <= over_at}
        wait_for("all rotations", lambda: len(events(topics, ROTATIONS)) >= len(over), 400)
        os.killpg(last.process.pid, signal.SIGTERM)
        last.process.wait()

    written = [event for event, _, _ in events(topics, ROTATIONS)]
    assert Counter(event["rotation_id"] for event in written) == Counter(over)
    assert {event["rotation_id"]: event for event in written} == over
    assert sum(each["legs"] for each in expected) == sum(flight["tail_number"] is not None for flight in sent)
    late = topics.catalog.topic(ROTATIONS).late_topic
    assert late is not None
    assert [dict(headers_of(letter))["ce_id"] for letter in topics.read(late)] == []
    assert max(each["legs"] for each in written) > 2

"""All departures and all weather of 2013 through `departure_weather`, killed on its way, against hours in plain Python (`pytest -m long`)."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from contracts.definitions.catalog import load_catalog
from contracts.servers.registry import Registry
from deploy.local.servers.stack import LocalStack
from spark.pipelines.departure_weather import departure_weather
from spark.runtime.settings import SparkSettings
from tests.spark.examples import Topics
from tests.spark.live_query import Dimensions, events, wait_for
from tests.spark.pipelines.test_joins import hour_of, with_weather
from tests.spark.pipelines.test_pipelines import a_departure, a_reading
from tests.spark.pipelines.year import all_flights, send, taken_in
from tests.spark.queries.test_processes import Place
from tests.system.oracle import readings

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]

DEPARTED, OBSERVED = departure_weather.sources
WEATHER = departure_weather.target
_DEPLOYED = "tests.spark.pipelines.deployed"
_KILLS = 2
_SEED = 20261126


@pytest.fixture
def topics(settings: SparkSettings, registry: Registry) -> Iterator[Topics]:
    with Topics(settings, load_catalog(), registry, names=(DEPARTED, OBSERVED, WEATHER)) as made:
        yield made


def test_every_departure_of_a_year_has_the_weather_of_its_hour_though_it_was_killed(
    stack: LocalStack, settings: SparkSettings, topics: Topics, published: Dimensions, tmp_path: Path
) -> None:
    flights, observed, chance = all_flights(), readings(), random.Random(_SEED)
    send(topics, flights)
    send(topics, observed, OBSERVED)
    count, few = len(flights) + len(observed), {"HEADRACE_LIVE__MAX_OFFSETS_PER_TRIGGER": "20000"}
    # The weather ends a day before the flights, and without a later reading the last day would wait for it.
    end = datetime(2014, 2, 1, tzinfo=UTC)
    last = a_departure(flight_id="last", departed_at=end), a_reading(observed_at=end)
    with Place(stack, settings, topics, published, tmp_path) as place:
        for kill in range(_KILLS):
            running = place.start(departure_weather.name, _DEPLOYED, **few)
            until = count * (kill + 1) // (_KILLS + 1) + chance.randrange(20_000)
            wait_for(
                f"{until} records", lambda until=until: taken_in(departure_weather, settings, topics) >= until, 900
            )
            running.kill()
        running = place.start(departure_weather.name, _DEPLOYED, **few)
        wait_for("all records", lambda: taken_in(departure_weather, settings, topics) == count, 900)
        for name, event in zip((DEPARTED, OBSERVED), last, strict=True):
            send(topics, [event], name)
        wait_for("what has no weather", lambda: len(events(topics, WEATHER)) > len(flights), 900)
        os.killpg(running.process.pid, signal.SIGTERM)
        running.process.wait()

    by_hour = {(each["station"], each["observed_at"]): each for each in [*observed, last[1]]}
    expected = {each["flight_id"]: with_weather(each, by_hour.get(hour_of(each))) for each in [*flights, last[0]]}
    written = [event for event, _, _ in events(topics, WEATHER)]
    assert Counter(event["flight_id"] for event in written) == Counter(expected.keys())
    assert {event["flight_id"]: event for event in written} == expected
    assert topics.read(str(topics.catalog.topic(WEATHER).late_topic)) == []
    assert sum(event["observed_at"] is None for event in written) == 1564

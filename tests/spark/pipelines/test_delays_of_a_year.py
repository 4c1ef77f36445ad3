"""All departures of 2013 through `delays_by_origin`, killed three times on its way, against windows in plain Python (`pytest -m long`)."""

from __future__ import annotations

import io
import json
import os
import random
import signal
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from pathlib import Path
from typing import Any

import fastavro
import pytest

from contracts.definitions.catalog import load_catalog
from contracts.records.headers import headers_of
from contracts.servers.registry import Registry
from deploy.local.servers.stack import LocalStack
from spark.pipelines.delays_by_origin import delays_by_origin
from spark.runtime.settings import SparkSettings
from tests.spark.aggregates.percentile import percentile
from tests.spark.examples import Topics
from tests.spark.live_query import Dimensions, events, wait_for
from tests.spark.pipelines.year import all_flights, send, taken_in
from tests.spark.queries.test_processes import Place

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

DEPARTED, DELAYS = delays_by_origin.source, delays_by_origin.target
_DEPLOYED = "tests.spark.pipelines.deployed"
_MINUTES = 15
_KILLS = 3
_SEED = 20261125

Flight = Mapping[str, Any]


@pytest.fixture(scope="module")
def flights() -> list[Flight]:
    """In the order in which they left."""
    return all_flights()


@pytest.fixture
def topics(settings: SparkSettings, registry: Registry) -> Iterator[Topics]:
    with Topics(settings, load_catalog(), registry, names=(DEPARTED, DELAYS)) as made:
        yield made


def in_order(flights: Sequence[Flight]) -> list[Flight]:
    return list(flights)


def disordered(flights: Sequence[Flight]) -> list[Flight]:
    """One in fifty comes up to two hours later than it left, one in fifty twice, and one in a hundred up to two months later: a batch has the events of
    nine days, and is compared with the watermark of the one before the last.
    """
    chance, moved = random.Random(_SEED), []
    for flight in flights:
        hours = chance.choices((0, 2, 24 * 60), (97, 2, 1))[0]
        moved.append((flight["departed_at"] + timedelta(hours=chance.uniform(0, hours)), flight))
        if chance.random() < 0.02:
            moved.append((flight["departed_at"], flight))
    return [flight for _, flight in sorted(moved, key=itemgetter(0))]


def _window(flight: Flight) -> str:
    at: datetime = flight["departed_at"]
    return f"{flight['origin']}/{at.replace(minute=at.minute // _MINUTES * _MINUTES):%Y-%m-%dT%H:%M:00Z}"


def _windows(flights: Sequence[Flight]) -> dict[str, tuple[int, float, float]]:
    """By id of the window: how many left, the mean and the 95th percentile of their delays."""
    delays = defaultdict(list)
    for flight in flights:
        delays[_window(flight)].append(flight["departure_delay_minutes"])
    return {name: (len(each), sum(each) / len(each), percentile(sorted(each), 0.95)) for name, each in delays.items()}


@pytest.mark.parametrize("arranged", [in_order, disordered])
def test_every_window_of_a_year_is_right_though_it_was_killed_three_times(
    stack: LocalStack,
    settings: SparkSettings,
    topics: Topics,
    published: Dimensions,
    tmp_path: Path,
    flights: list[Flight],
    arranged: Any,
) -> None:
    sent, chance = arranged(flights), random.Random(_SEED)
    send(topics, sent)
    few = {"HEADRACE_LIVE__MAX_OFFSETS_PER_TRIGGER": "8000"}
    with Place(stack, settings, topics, published, tmp_path) as place:
        for kill in range(_KILLS):
            running = place.start(delays_by_origin.name, _DEPLOYED, **few)
            until = len(sent) * (kill + 1) // (_KILLS + 1) + chance.randrange(8_000)
            wait_for(f"{until} records", lambda until=until: taken_in(delays_by_origin, settings, topics) >= until, 240)
            running.kill()
        last = place.start(delays_by_origin.name, _DEPLOYED, **few)
        wait_for("all records", lambda: taken_in(delays_by_origin, settings, topics) == len(sent), 240)
        os.killpg(last.process.pid, signal.SIGTERM)
        last.process.wait()

    records = events(topics, DELAYS)
    ids = [headers["ce_id"] for _, headers, _ in records]
    assert len(ids) == len(set(ids))
    newest = {event["window_id"]: event for event, _, _ in records}
    late_topic = topics.catalog.topic(DELAYS).late_topic
    assert late_topic is not None
    letters = topics.read(late_topic)
    places = [dict(headers_of(letter))["ce_id"] for letter in letters]
    assert len(places) == len(set(places))
    schema = fastavro.parse_schema(json.loads(topics.catalog.schema(DEPARTED)))
    late = [fastavro.schemaless_reader(io.BytesIO(bytes(each.value() or b"")[5:]), schema, None) for each in letters]
    assert not late if arranged is in_order else late

    expected, of_late = _windows(sent), Counter(_window(each) for each in late if isinstance(each, dict))
    counted = Counter({name: event["departures"] for name, event in newest.items()})
    assert counted + of_late == {name: count for name, (count, _, _) in expected.items()}
    whole = expected.keys() - of_late.keys()
    found = {
        name: (event["departures"], event["delay_mean_minutes"], event["delay_p95_minutes"])
        for name, event in newest.items()
    }
    assert {name: found[name] for name in whole} == {name: expected[name] for name in whole}
    assert sum(counted.values()) + len(late) == len(sent)
    assert newest["EWR/2013-01-01T10:15:00Z"]["begins_at"] == datetime(2013, 1, 1, 10, 15, tzinfo=UTC)

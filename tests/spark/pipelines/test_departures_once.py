"""`departures_once` as it is deployed, killed on its way, against departures that were sent again in plain Python and the audit's."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest

from contracts.definitions.catalog import load_catalog
from contracts.servers.registry import Registry
from deploy.local.servers.stack import LocalStack
from services.audit.hops.hop import Hop
from spark.pipelines.departures_once import departures_once
from spark.runtime.settings import SparkSettings
from tests.spark.auditor import PLATFORM, Auditor, noted
from tests.spark.examples import Topics, body, framed
from tests.spark.live_query import Dimensions, events, wait_for
from tests.spark.pipelines.test_pipelines import a_departure
from tests.spark.pipelines.year import taken_in
from tests.spark.queries.test_processes import Place

_DEPLOYED = "tests.spark.pipelines.deployed"
_DEPARTED, _ONCE = departures_once.source, departures_once.target
_BEGIN = datetime(2013, 1, 1, tzinfo=UTC)
_FLIGHTS, _EVERY = 400, timedelta(minutes=15)
_END = _BEGIN + timedelta(days=30)
_SEED = 20261127

Event = dict[str, Any]


@pytest.fixture
def topics(settings: SparkSettings, registry: Registry) -> Iterator[Topics]:
    with Topics(settings, load_catalog(), registry, names=(_DEPARTED, _ONCE, *PLATFORM)) as made:
        yield made


def _sent() -> list[Event]:
    """Half of the flights again, up to three times, and all up to an hour behind their time, which is less than makes them late."""
    chance, sent = random.Random(_SEED), list[tuple[timedelta, Event]]()
    for number in range(_FLIGHTS):
        flight = a_departure(flight_id=f"flight-{number}", departed_at=_BEGIN + number * _EVERY)
        for _ in range(1 + chance.choice([0, 0, 0, 1, 2, 3])):
            behind = number * _EVERY + chance.random() * timedelta(hours=1)
            sent.append((behind, flight))
    return [flight for _, flight in sorted(sent, key=itemgetter(0))]


def _send(topics: Topics, sent: Sequence[Event], partition: int | None = None) -> None:
    """In turn to both partitions, if none is named: so a flight may be in either, and neither gets far behind."""
    schema = topics.catalog.schema(_DEPARTED)
    values = [framed(topics.schema_ids[_DEPARTED], body(flight, schema)) for flight in sent]
    for to in (0, 1) if partition is None else (partition,):
        own = values[to::2] if partition is None else values
        topics.send(*own, partition=to, topic=_DEPARTED)


@pytest.mark.long
def test_every_departure_comes_out_once_though_it_was_sent_again_and_the_pipeline_was_killed(
    stack: LocalStack,
    settings: SparkSettings,
    topics: Topics,
    published: Dimensions,
    tmp_path: Path,
) -> None:
    sent = _sent()
    half = len(sent) // 2
    last, late = (a_departure(flight_id=name, departed_at=at) for name, at in (("last", _END), ("late", _BEGIN)))
    expected = Counter([*(f"flight-{number}" for number in range(_FLIGHTS)), "last"])
    late_topic = str(topics.catalog.topic(_ONCE).late_topic)

    def records() -> list[dict[str, Any]]:
        return [event for event, _, _ in events(topics, _ONCE)]

    few = {"HEADRACE_LIVE__MAX_OFFSETS_PER_TRIGGER": "100"}
    with Place(stack, settings, topics, published, tmp_path) as place:
        _send(topics, sent[:half])
        first = place.start(departures_once.name, _DEPLOYED, **few)
        wait_for("the first records", lambda: bool(records()))
        first.kill()
        _send(topics, sent[half:])
        second = place.start(departures_once.name, _DEPLOYED, **few)
        wait_for("all but the last", lambda: taken_in(departures_once, settings, topics) == len(sent))
        _send(topics, [last], 0)
        wait_for("all records", lambda: len(records()) >= len(expected))
        # The watermark moves behind the batch of the last one.
        wait_for("the last", lambda: taken_in(departures_once, settings, topics) == len(sent) + 1)
        _send(topics, [last], 0)
        wait_for("the last again", lambda: taken_in(departures_once, settings, topics) == len(sent) + 2)
        _send(topics, [late], 1)
        wait_for("the late one", lambda: bool(topics.read(late_topic)))
        os.killpg(second.process.pid, signal.SIGTERM)
        second.process.wait()
    assert Counter(event["flight_id"] for event in records()) == expected
    told = {flight["flight_id"]: flight for flight in (*sent, last)}
    assert all(event == told[event["flight_id"]] for event in records())
    assert len(topics.read(late_topic)) == 1
    report = Auditor(settings, topics, tmp_path, Hop.DISTINCT)()
    assert report.findings == []
    assert noted(report, "let through") == len(expected)
    assert noted(report, "left out, for another record of the event is there") == len(sent) + 2 - len(expected)

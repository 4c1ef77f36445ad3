"""`flight_legs` as it is deployed, killed on its way, against pairs in plain Python and the audit's."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from contracts.definitions.catalog import load_catalog
from contracts.servers.registry import Registry
from deploy.local.servers.stack import LocalStack
from services.audit.hops.hop import Hop
from services.audit.settings import AuditSettings
from spark.pipelines.flight_legs import flight_legs
from spark.runtime.settings import SparkSettings
from tests.spark.auditor import PLATFORM, Auditor, noted
from tests.spark.examples import Topics, body, framed
from tests.spark.live_query import Dimensions, events, wait_for
from tests.spark.pipelines.test_pipelines import a_departure, an_arrival
from tests.spark.queries.test_processes import Place

DEPARTED, ARRIVED = flight_legs.sources
LEGS = flight_legs.target
_DEPLOYED = "tests.spark.pipelines.deployed"
_BEGIN = datetime(2013, 1, 1, tzinfo=UTC)
_FLIGHTS, _EVERY = 400, timedelta(minutes=15)
_BOUND = timedelta(hours=20)
_SEED = 20261126

Timed = tuple[datetime, dict[str, Any]]


@pytest.fixture
def topics(settings: SparkSettings, registry: Registry) -> Iterator[Topics]:
    with Topics(settings, load_catalog(), registry, names=(DEPARTED, ARRIVED, LEGS, *PLATFORM)) as made:
        yield made


def _flights() -> tuple[list[Timed], list[Timed]]:
    """Departures and arrivals, each in the order of their times: one in five never arrives, one in ten after more than twenty hours."""
    chance = random.Random(_SEED)
    departures, arrivals = [], []
    for number in range(_FLIGHTS):
        at, name = _BEGIN + number * _EVERY, f"flight-{number}"
        departures.append((at, a_departure(flight_id=name, departed_at=at)))
        if chance.random() < 0.8:
            minutes = chance.randrange(30, 1200) if chance.random() < 0.9 else chance.randrange(1201, 1800)
            there = at + timedelta(minutes=minutes)
            arrivals.append((there, an_arrival(flight_id=name, arrived_at=there)))
    return departures, sorted(arrivals, key=lambda each: each[0])


def _send(topics: Topics, name: str, found: Sequence[Timed]) -> None:
    schema = topics.catalog.schema(name)
    for partition in (0, 1):
        values = [framed(topics.schema_ids[name], body(event, schema)) for _, event in found[partition::2]]
        topics.send(*values, partition=partition, topic=name)


def _legs(topics: Topics) -> list[tuple[Any, ...]]:
    fields = ("flight_id", "departed_at", "arrived_at", "arrival_delay_minutes", "gate_to_gate_minutes")
    return [tuple(event[name] for name in fields) for event, _, _ in events(topics, LEGS)]


def _leg(flight: str, departed_at: datetime, arrived_at: datetime | None) -> tuple[Any, ...]:
    if arrived_at is None:
        return flight, departed_at, None, None, None
    return flight, departed_at, arrived_at, 11, (arrived_at - departed_at).total_seconds() / 60


def test_every_flight_has_its_arrival_or_none_once_though_it_was_killed(
    stack: LocalStack,
    settings: SparkSettings,
    topics: Topics,
    published: Dimensions,
    tmp_path: Path,
) -> None:
    departures, arrivals = _flights()
    middle = _BEGIN + _FLIGHTS // 2 * _EVERY
    with Place(stack, settings, topics, published, tmp_path) as place:
        for name, found in ((DEPARTED, departures), (ARRIVED, arrivals)):
            _send(topics, name, [each for each in found if each[0] < middle])
        first = place.start(flight_legs.name, _DEPLOYED)
        wait_for("the first legs", lambda: bool(_legs(topics)))
        first.kill()
        end = _BEGIN + timedelta(days=30)
        last = [
            (DEPARTED, departures, a_departure(flight_id="last", departed_at=end)),
            (ARRIVED, arrivals, an_arrival(flight_id="last", arrived_at=end + timedelta(hours=1))),
        ]
        for name, found, event in last:
            _send(topics, name, [*[each for each in found if each[0] >= middle], (end, event)])
        arrived = {event["flight_id"]: at for at, event in arrivals}
        within = {
            event["flight_id"]: arrived[event["flight_id"]]
            for at, event in departures
            if event["flight_id"] in arrived and arrived[event["flight_id"]] <= at + _BOUND
        }
        expected = [_leg(each["flight_id"], at, within.get(each["flight_id"])) for at, each in departures]
        expected.append(_leg("last", end, end + timedelta(hours=1)))
        second = place.start(flight_legs.name, _DEPLOYED)
        wait_for("all legs", lambda: len(_legs(topics)) >= len(expected))
        os.killpg(second.process.pid, signal.SIGTERM)
        second.process.wait()
    assert Counter(_legs(topics)) == Counter(expected)
    assert topics.read(str(topics.catalog.topic(LEGS).late_topic)) == []
    assert None in {each[2] for each in expected}
    report = Auditor(settings, topics, tmp_path, Hop.JOINS, joins_file=AuditSettings().joins_file)()
    assert report.findings == []
    assert noted(report, "with pairs") == len(within) + 1

"""Each pipeline that joins as it is deployed, killed on its way, against pairs in plain Python and the audit's."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest

from contracts.definitions.catalog import load_catalog
from contracts.servers.registry import Registry
from deploy.local.servers.stack import LocalStack
from services.audit.hops.hop import Hop
from services.audit.settings import AuditSettings
from spark.pipeline import Pipeline
from spark.pipelines.departure_weather import departure_weather
from spark.pipelines.flight_legs import flight_legs
from spark.runtime.settings import SparkSettings
from tests.spark.auditor import PLATFORM, Auditor, noted
from tests.spark.examples import Topics, body, framed
from tests.spark.live_query import Dimensions, events, wait_for
from tests.spark.pipelines.test_pipelines import a_departure, a_reading, an_arrival
from tests.spark.queries.test_processes import Place
from tests.spark.year.events import taken_in

_DEPLOYED = "tests.spark.pipelines.deployed"
_PIPELINES = (flight_legs, departure_weather)
_BEGIN = datetime(2013, 1, 1, tzinfo=UTC)
_END = _BEGIN + timedelta(days=30)
_FLIGHTS, _EVERY = 400, timedelta(minutes=15)
HOUR, _MILLISECOND = timedelta(hours=1), timedelta(milliseconds=1)
_SEED = 20261126
_LEFT_OUT = ("station", "dew_point_fahrenheit", "relative_humidity_percent", "pressure_millibars")
"""What a record does not take of a reading."""
_OF_THE_FLIGHT = ("flight_id", "carrier", "origin", "destination", "departed_at", "departure_delay_minutes")

Event = Mapping[str, Any]


@dataclass(frozen=True)
class Story:
    """What comes to a pipeline, in the order of the events' times, and what it has to make of it. The `last` of either topic are a pair, so late that
    all before are over; the `late` ones come behind them.
    """

    pipeline: Pipeline
    first: Sequence[Event]
    second: Sequence[Event]
    last: tuple[Event, Event]
    late: tuple[Event, Event]
    is_pair: Callable[[Event, Event], bool]
    record: Callable[[Event, Event | None], Event]

    def pairs(self) -> list[tuple[Event, list[Event]]]:
        """Each event of the first topic with those that it has a pair with."""
        first, second = [*self.first, self.last[0]], [*self.second, self.last[1]]
        return [(one, [other for other in second if self.is_pair(one, other)]) for one in first]


def _carried(departure: Event) -> dict[str, Any]:
    return {name: departure[name] for name in _OF_THE_FLIGHT}


def with_weather(departure: Event, reading: Event | None) -> Event:
    """What `departure_weather` makes of both."""
    there = {} if reading is None else reading
    return _carried(departure) | {name: there.get(name) for name in a_reading() if name not in _LEFT_OUT}


def leg(departure: Event, arrival: Event | None) -> Event:
    """What `flight_legs` makes of both."""
    there = {} if arrival is None else arrival
    minutes = arrival and (arrival["arrived_at"] - departure["departed_at"]).total_seconds() / 60
    of_the_arrival = {name: there.get(name) for name in ("arrived_at", "arrival_delay_minutes")}
    return _carried(departure) | of_the_arrival | {"gate_to_gate_minutes": minutes}


def hour_of(departure: Event) -> tuple[str, datetime]:
    """The station and the time that a reading has to be of."""
    return departure["origin"], departure["departed_at"].replace(minute=0, second=0, microsecond=0)


def _legs() -> Story:
    """One in five never arrives, one in ten after more than twenty hours."""
    chance = random.Random(_SEED)
    departures, arrivals = [], []
    for number in range(_FLIGHTS):
        at, name = _BEGIN + number * _EVERY, f"flight-{number}"
        departures.append(a_departure(flight_id=name, departed_at=at))
        if chance.random() < 0.8:
            minutes = chance.randrange(30, 1200) if chance.random() < 0.9 else chance.randrange(1201, 1800)
            arrivals.append(an_arrival(flight_id=name, arrived_at=at + timedelta(minutes=minutes)))

    def is_its_own(departure: Event, arrival: Event) -> bool:
        hours = (arrival["arrived_at"] - departure["departed_at"]) / HOUR
        return bool(departure["flight_id"] == arrival["flight_id"] and 0 <= hours <= 20)

    return Story(
        flight_legs,
        departures,
        sorted(arrivals, key=itemgetter("arrived_at")),
        (a_departure(flight_id="last", departed_at=_END), an_arrival(flight_id="last", arrived_at=_END + HOUR)),
        (a_departure(flight_id="late", departed_at=_BEGIN), an_arrival(flight_id="late", arrived_at=_BEGIN + HOUR)),
        is_its_own,
        leg,
    )


def _weather() -> Story:
    """Flights leave at the edges of hours, too. One hour in ten nobody observed, one in ten was sent twice."""
    chance = random.Random(_SEED)
    airports = ("EWR", "JFK", "LGA")
    departures, readings = [], []
    for number in range(_FLIGHTS):
        at = _BEGIN + (number + 1) * _EVERY - chance.choice([0, 1, chance.randrange(600_000)]) * _MILLISECOND
        departures.append(a_departure(flight_id=f"flight-{number}", origin=chance.choice(airports), departed_at=at))
    for number in range(_FLIGHTS // 4 + 1):
        for station in airports:
            for again in range(chance.choices((0, 1, 2), (1, 8, 1))[0]):
                reading = a_reading(station=station, observed_at=_BEGIN + number * HOUR, wind_gust_mph=20.0 + again)
                readings.append(reading)

    def is_of_its_hour(departure: Event, reading: Event) -> bool:
        return hour_of(departure) == (reading["station"], reading["observed_at"])

    return Story(
        departure_weather,
        departures,
        readings,
        (a_departure(flight_id="last", departed_at=_END), a_reading(observed_at=_END)),
        (a_departure(flight_id="late", departed_at=_BEGIN), a_reading(observed_at=_BEGIN)),
        is_of_its_hour,
        with_weather,
    )


def in_order(at: datetime, chance: random.Random) -> datetime:
    return at


def shuffled(at: datetime, chance: random.Random) -> datetime:
    """When it is sent: up to an hour behind its time, which is less than makes it late."""
    return at + chance.random() * HOUR


@pytest.fixture
def topics(settings: SparkSettings, registry: Registry) -> Iterator[Topics]:
    names = {name for each in _PIPELINES for name in (*each.sources, each.target)}
    with Topics(settings, load_catalog(), registry, names=(*sorted(names), *PLATFORM)) as made:
        yield made


def _send(topics: Topics, name: str, found: Sequence[Event]) -> None:
    for partition in (0, 1):
        topics.send(*_values(topics, name, found[partition::2]), partition=partition, topic=name)


def _values(topics: Topics, name: str, found: Sequence[Event]) -> list[bytes]:
    schema = topics.catalog.schema(name)
    return [framed(topics.schema_ids[name], body(dict(event), schema)) for event in found]


def _counted(records: Sequence[Event]) -> Counter[tuple[tuple[str, Any], ...]]:
    return Counter(tuple(sorted(each.items())) for each in records)


@pytest.mark.long
@pytest.mark.parametrize("arranged", [in_order, shuffled])
@pytest.mark.parametrize("told", [_legs, _weather])
def test_every_flight_has_what_belongs_to_it_or_nothing_once_though_it_was_killed(
    stack: LocalStack,
    settings: SparkSettings,
    topics: Topics,
    published: Dimensions,
    tmp_path: Path,
    told: Callable[[], Story],
    arranged: Callable[[datetime, random.Random], datetime],
) -> None:
    story, chance = told(), random.Random(_SEED)
    pipeline, sources = story.pipeline, story.pipeline.sources
    middle, halves = _BEGIN + _FLIGHTS // 2 * _EVERY, list[tuple[str, list[Event], list[Event]]]()
    for name, found in zip(sources, (story.first, story.second), strict=True):
        occurred_at = topics.catalog.topic(name).occurred_at
        timed = sorted(((arranged(event[occurred_at], chance), event) for event in found), key=itemgetter(0))
        before = [event for at, event in timed if at < middle]
        halves.append((name, before, [event for at, event in timed if at >= middle]))
    pairs = story.pairs()
    expected = [story.record(one, other) for one, others in pairs for other in [*others] or (None,)]
    late_topic = str(topics.catalog.topic(pipeline.target).late_topic)
    late = [value for name, event in zip(sources, story.late, strict=True) for value in _values(topics, name, [event])]

    def records() -> list[Event]:
        return [event for event, _, _ in events(topics, pipeline.target)]

    few = {"HEADRACE_LIVE__MAX_OFFSETS_PER_TRIGGER": "150"}
    with Place(stack, settings, topics, published, tmp_path) as place:
        for name, before, _ in halves:
            _send(topics, name, before)
        first = place.start(pipeline.name, _DEPLOYED, **few)
        wait_for("the first records", lambda: bool(records()))
        first.kill()
        for name, _, behind in halves:
            _send(topics, name, behind)
        second = place.start(pipeline.name, _DEPLOYED, **few)
        count = len(story.first) + len(story.second)
        wait_for("all but the last", lambda: taken_in(pipeline, settings, topics) == count)
        for name, event in zip(sources, story.last, strict=True):
            _send(topics, name, [event])
        wait_for("all records", lambda: len(records()) >= len(expected))
        for name, event in zip(sources, story.late, strict=True):
            _send(topics, name, [event])
        wait_for("the late ones", lambda: len(topics.read(late_topic)) >= len(late))
        os.killpg(second.process.pid, signal.SIGTERM)
        second.process.wait()
    assert _counted(records()) == _counted(expected)
    assert Counter(message.value() for message in topics.read(late_topic)) == Counter(late)
    report = Auditor(settings, topics, tmp_path, Hop.JOINS, joins_file=AuditSettings().joins_file)()
    assert report.findings == []
    with_pairs = sum(bool(others) for _, others in pairs)
    assert noted(report, "with pairs") == with_pairs
    assert noted(report, "without a pair that must be there") == len(pairs) - with_pairs > 0

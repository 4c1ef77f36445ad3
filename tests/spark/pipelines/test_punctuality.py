"""Departures and cancellations of 2013 through `punctuality_by_origin`, some late, against windows in plain Python; and the audit of what came of them."""

from __future__ import annotations

import random
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from contracts.definitions.catalog import load_catalog
from contracts.records.missed_windows import MissedWindows
from contracts.servers.registry import Registry
from services.audit.declared.aggregates import load_aggregates
from services.audit.hops.hop import Hop
from services.audit.settings import AuditSettings
from spark.pipelines.punctuality_by_origin import punctuality_by_origin
from spark.runtime.settings import SparkSettings
from tests.spark.aggregates.percentile import percentile
from tests.spark.aggregates.test_stateful import Query
from tests.spark.auditor import PLATFORM, Auditor
from tests.spark.examples import Topics
from tests.spark.pipelines.year import all_flights, send
from tests.system.oracle import cancelled_flights

pytestmark = pytest.mark.timeout(1800)

TARGET = punctuality_by_origin.target
_WINDOW, _SLIDE = timedelta(hours=1), timedelta(minutes=5)
_PIECES = 5
_SEED = 20261129

Flight = Mapping[str, Any]


@pytest.fixture
def topics(settings: SparkSettings, registry: Registry) -> Iterator[Topics]:
    catalog = load_catalog()
    # All that the audit's file tells of, and what they count.
    aggregates = load_aggregates(AuditSettings().aggregates_file, catalog)
    with Topics(settings, catalog, registry, names=(*punctuality_by_origin.sources, *aggregates, *PLATFORM)) as made:
        yield made


def _at(flight: Flight) -> datetime:
    at: datetime = flight.get("departed_at", flight["scheduled_departure_at"])
    return at


def _in_order_of_arrival(days: int) -> list[Flight]:
    """Two in a hundred departures, and a fifth of the few cancellations, up to two days late."""
    chance, moved = random.Random(_SEED), []
    until = datetime(2013, 1, 1, 5, tzinfo=UTC) + timedelta(days=days)
    for flight in (*all_flights(), *cancelled_flights()):
        if _at(flight) < until:
            often = 0.02 if "departed_at" in flight else 0.2
            hours = chance.uniform(0, 48) if chance.random() < often else 0
            moved.append((_at(flight) + timedelta(hours=hours), flight))
    return [flight for _, flight in sorted(moved, key=itemgetter(0))]


def _begins(flight: Flight) -> list[datetime]:
    """Those of its windows."""
    at = _at(flight).replace(second=0, microsecond=0)
    last = at - timedelta(minutes=at.minute % 5)
    return [last - number * _SLIDE for number in range(12)]


def _groups(counted: Mapping[tuple[str, datetime], list[int | None]]) -> dict[str, dict[str, Any]]:
    """What is written of each, by its key; None is the delay of what was cancelled."""
    found = {}
    for (origin, begin), members in counted.items():
        delays = sorted(each for each in members if each is not None)
        window_id = f"{origin}/{begin:%Y-%m-%dT%H:%M:%SZ}"
        found[window_id] = {
            "window_id": window_id,
            "origin": origin,
            "begins_at": begin,
            "ends_at": begin + _WINDOW,
            "departures": len(delays),
            "cancellations": len(members) - len(delays),
            "cancelled_share": (len(members) - len(delays)) / len(members),
            "delay_mean_minutes": statistics.fmean(delays) if delays else None,
            "delay_p95_minutes": percentile(delays, 0.95) if delays else None,
            "is_final": False,
        }
    return found


@pytest.mark.parametrize("days", [4, pytest.param(365, marks=pytest.mark.long)])
def test_every_window_is_right_but_for_what_late_records_say(
    spark: SparkSession, settings: SparkSettings, registry: Registry, topics: Topics, tmp_path: Path, days: int
) -> None:
    query = Query(spark, settings, registry, topics, punctuality_by_origin)
    flights, sent = _in_order_of_arrival(days), {}
    offsets: dict[tuple[str, int], int] = defaultdict(int)
    departed, cancelled = punctuality_by_origin.sources
    size = -(-len(flights) // _PIECES)
    for number in range(_PIECES):
        piece = flights[number * size : (number + 1) * size]
        for name in (departed, cancelled):
            own = [each for each in piece if ("departed_at" in each) == (name == departed)]
            send(topics, own, name)
            for place, flight in enumerate(own):
                partition = place % 2
                sent[f"{topics.catalog.topic(name).name}/{partition}/{offsets[name, partition]}"] = flight
                offsets[name, partition] += 1
        query.take_in()
        if number in (1, 3):
            # As if it was killed before the last batch was committed.
            query.forget_commit()
    missed = {}
    for headers in query.late():
        found = MissedWindows.of([*headers.items()])
        assert found is not None
        missed[(headers["ce_id"] or b"").decode()] = found.last
    assert {of.rsplit("/", 2)[0] for of in missed} == {
        topics.catalog.topic(name).name for name in (departed, cancelled)
    }
    counted = defaultdict(list)
    for of, flight in sent.items():
        for begin in _begins(flight):
            if of not in missed or begin + _WINDOW > missed[of]:
                counted[flight["origin"], begin].append(flight.get("departure_delay_minutes"))
    expected, newest = _groups(counted), query.newest()
    assert newest.keys() == expected.keys()
    assert [each for each in expected if newest[each] != expected[each]] == []
    ids = query.ids()
    assert len(ids) == len(set(ids))
    aggregates = AuditSettings().aggregates_file
    assert Auditor(settings, topics, tmp_path, Hop.AGGREGATES, aggregates_file=aggregates)().findings == []

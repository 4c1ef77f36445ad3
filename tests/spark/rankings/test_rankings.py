"""Rankings on the real stack, against an oracle in plain Python."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import pytest
from pyspark.errors.exceptions.captured import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from contracts.definitions.catalog import Catalog
from contracts.servers.registry import Registry
from spark.runtime.errors import StateLost
from spark.runtime.settings import SparkSettings
from tests.sample.pipelines.slowest_lines import slowest_lines
from tests.spark.aggregates.test_stateful import Query
from tests.spark.examples import DISPATCHED, Topics, a_dispatch, body, framed
from tests.spark.live_query import events

_BEGIN = a_dispatch()["dispatched_at"]
_PLACES, _ENOUGH = 3, 2

Dispatch = tuple[str, str, int]
"""Origin, destination, minutes of delay."""

FIRST: list[Dispatch] = [
    *[("NTH", "STH", 5), ("NTH", "STH", 8), ("STH", "NTH", 60), ("EST", "STH", 3), ("EST", "STH", 3)],
    *[("STH", "EST", 3), ("STH", "EST", 3), ("EST", "NTH", -9), ("EST", "NTH", 9)],
]
SECOND: list[Dispatch] = [("STH", "NTH", 40), ("NTH", "STH", -90), ("WST", "NTH", 500)]


class Lines(Query):
    """`slowest_lines` over the topics of a test."""

    def send(self, *dispatches: Any, partition: int = 0) -> None:
        values = [
            a_dispatch(origin=origin, destination=to, late_minutes=late, dispatched_at=_BEGIN + timedelta(minutes=late))
            for origin, to, late in dispatches
        ]
        self.topics.send(
            *[framed(self.topics.schema_ids[DISPATCHED], body(each)) for each in values], partition=partition
        )

    def places(self) -> list[dict[str, Any]]:
        """What the newest record of each place says."""
        newest = {
            key: event for event, _, message in events(self.topics, self.pipeline.target) if (key := message.key())
        }
        assert {key.decode(): event["place"] for key, event in newest.items()} == {
            str(event["place"]): event["place"] for event in newest.values()
        }
        return [event for _, event in sorted(newest.items())]


def ranked(dispatches: Sequence[Dispatch]) -> list[dict[str, Any]]:
    late = defaultdict(list)
    for origin, destination, minutes in dispatches:
        late[origin, destination].append(minutes)
    means = {line: statistics.fmean(minutes) for line, minutes in late.items()}
    order = sorted(
        late, key=lambda line: (len(late[line]) < _ENOUGH, -means[line] if len(late[line]) >= _ENOUGH else 0, line)
    )
    return [
        {
            "place": place,
            "origin": line[0],
            "destination": line[1],
            "dispatches": len(late[line]),
            "late_mean_minutes": means[line],
            "last_dispatched_at": _BEGIN + timedelta(minutes=max(late[line])),
        }
        for place, line in enumerate(order[:_PLACES], 1)
    ]


@pytest.fixture
def topics(settings: SparkSettings, catalog: Catalog, registry: Registry) -> Iterator[Topics]:
    with Topics(settings, catalog, registry, names=(DISPATCHED, slowest_lines.target)) as made:
        yield made


@pytest.fixture
def query(spark: SparkSession, settings: SparkSettings, registry: Registry, topics: Topics) -> Lines:
    return Lines(spark, settings, registry, topics, slowest_lines)


def test_each_place_has_what_all_events_say(query: Lines) -> None:
    query.send(("STH", "NTH", 60))
    query.take_in()
    assert query.places() == ranked([("STH", "NTH", 60)])
    query.send(*FIRST)
    query.send(*SECOND, partition=1)
    query.topics.send(b"junk", partition=1)
    query.take_in()
    assert query.places() == ranked([("STH", "NTH", 60), *FIRST, *SECOND])
    assert query.set_aside(query.topics.catalog.topic(DISPATCHED).dead_letter_topic) == [
        f"{query.topics.dispatched.name}/1/{len(SECOND)}"
    ]
    assert len(set(query.ids())) == len(query.ids()) == 1 + _PLACES
    assert query.taken_in() == {0: 1 + len(FIRST), 1: len(SECOND) + 1}


def test_a_batch_that_runs_again_is_not_written_twice(query: Lines) -> None:
    query.send(*FIRST)
    query.take_in()
    ids = query.ids()
    query.forget_commit()
    query.take_in()
    assert query.ids() == ids
    query.send(*SECOND)
    query.take_in()
    assert query.places() == ranked([*FIRST, *SECOND])
    assert len(query.ids()) == len(ids) + _PLACES


def test_too_many_dead_letters_stop_a_list_that_is_written_already(query: Lines) -> None:
    query.topics.send(*[b"junk"] * 150)
    query.send(*FIRST)
    with pytest.raises(StreamingQueryException, match="150 of 159 .* the good ones are taken in already, so only this"):
        query.take_in()
    assert query.places() == ranked(FIRST)


def test_a_state_that_is_lost_is_computed_again(query: Lines) -> None:
    query.send(*FIRST)
    query.take_in()
    query.remove(query.files())
    with pytest.raises(StateLost, match="is gone"):
        query.take_in()
    query.send(*SECOND, partition=1)
    query.take_in(on_state_loss=query.told("is gone", "rebuild"))
    assert query.places() == ranked([*FIRST, *SECOND])


def test_a_list_in_another_order_goes_on_with_the_state(query: Lines) -> None:
    query.send(*FIRST)
    query.take_in()

    def latest(given: DataFrame) -> DataFrame:
        lines = given.groupBy("origin", "destination").agg(
            F.count("*").alias("dispatches"),
            F.avg("late_minutes").alias("late_mean_minutes"),
            F.max("dispatched_at").alias("last_dispatched_at"),
        )
        return lines.orderBy(F.desc("last_dispatched_at"), "origin", "destination").limit(3)

    query.with_function(latest)
    query.send(("EST", "NTH", 59))
    query.take_in()
    assert [(each["origin"], each["dispatches"]) for each in query.places()] == [("STH", 1), ("EST", 3), ("NTH", 2)]

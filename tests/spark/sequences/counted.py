"""The late parcels of vans as a query of a test, and what its records say."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import SparkSession

from contracts.records.coordinates import Coordinate
from contracts.servers.registry import Registry
from spark.pipeline import Pipeline
from spark.runtime.settings import SparkSettings
from tests.sample.pipelines.late_parcels_of_vans import late_parcels_of_vans
from tests.spark.aggregates.test_stateful import Query
from tests.spark.examples import DISPATCHED, Topics, a_dispatch, body, framed
from tests.spark.live_query import events

COUNTED = late_parcels_of_vans.target
TEN = datetime(2013, 1, 1, 10, 0, tzinfo=UTC)
LATE_AFTER = 120
FORGETS_AFTER = 240
"""In minutes."""

Event = tuple[str, int, int]
"""Van, minutes after ten, minutes late."""

Place = tuple[int, int]
"""Partition, offset."""

Made = tuple[str, int, int, float, Place]
"""Van, minutes after ten, how many are late in a row, their mean, and the place that the id names."""


class Counted(Query):
    """The pipeline over the topics of a test."""

    def __init__(
        self,
        spark: SparkSession,
        settings: SparkSettings,
        registry: Registry,
        topics: Topics,
        pipeline: Pipeline = late_parcels_of_vans,
    ) -> None:
        super().__init__(spark, settings, registry, topics, pipeline)
        self.source = topics.catalog.topic(DISPATCHED).name

    def dispatch(self, *found: Event, partition: int = 0) -> None:
        values = [
            body(a_dispatch(parcel_id=van, van_id=van, dispatched_at=TEN + timedelta(minutes=at), late_minutes=late))
            for van, at, late in found
        ]
        self.topics.send(*[framed(self.topics.schema_ids[DISPATCHED], value) for value in values], partition=partition)

    def made(self) -> list[Made]:
        """Of each record, in their order."""
        found = []
        for event, headers, _ in events(self.topics, COUNTED):
            minute = round((event["dispatched_at"] - TEN) / timedelta(minutes=1))
            of = Coordinate.in_event(self.source, headers["ce_id"])
            assert of is not None
            told = (event["van_id"], minute, event["late_in_a_row"], event["late_mean_minutes"])
            found.append((*told, (of.partition, of.offset)))
        return found


class Oracle:
    """What is made and what is late, in plain Python, of batches of records, each with the watermark behind it."""

    def __init__(self) -> None:
        self._newest = self._watermark = -(10**6)
        self._taken: dict[str, list[tuple[int, Place, int]]] = defaultdict(list)
        self.late: list[Place] = []

    def take(self, batch: Sequence[tuple[Event, Place]]) -> None:
        for (van, minute, late), place in batch:
            if minute <= self._watermark:
                self.late.append(place)
            else:
                self._taken[van].append((minute, place, late))
        self._newest = max([self._newest, *(minute for (_, minute, _), _ in batch)])
        self._watermark = max(self._watermark, self._newest - LATE_AFTER)

    def made(self) -> dict[str, list[Made]]:
        """By van, in the order of their times: those that the watermark has passed."""
        return {van: made for van, taken in self._taken.items() if (made := self._of(van, sorted(taken)))}

    def _of(self, van: str, taken: list[tuple[int, Place, int]]) -> list[Made]:
        found: list[Made] = []
        in_a_row, mean, last = 0, 0.0, None
        for minute, place, late in taken:
            if minute > self._watermark:
                break
            if last is None or minute - last > FORGETS_AFTER:
                in_a_row, mean = 0, float(late)
            in_a_row, mean, last = in_a_row + 1 if late > 0 else 0, (mean + late) / 2, minute
            if in_a_row:
                found.append((van, minute, in_a_row, mean, place))
        return found


def by_van(made: Sequence[Made]) -> dict[str, list[Made]]:
    """In the order of the records."""
    found: dict[str, list[Made]] = defaultdict(list)
    for each in made:
        found[each[0]].append(each)
    return dict(found)


def some(chance: Any, begin: int, until: int, count: int) -> list[Event]:
    """Events of a few vans, at these minutes."""
    return [(f"V{chance.randrange(5)}", chance.randrange(begin, until), chance.randrange(-1, 3)) for _ in range(count)]

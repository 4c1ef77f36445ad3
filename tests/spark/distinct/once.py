"""The dispatches that are let through once as a query of a test, and what its records say."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from pyspark.sql import SparkSession

from contracts.records.coordinates import Coordinate
from contracts.servers.registry import Registry
from spark.pipeline import Pipeline
from spark.runtime.settings import SparkSettings
from tests.sample.pipelines.dispatches_once import dispatches_once
from tests.spark.aggregates.test_stateful import Query
from tests.spark.examples import DISPATCHED, Topics, a_dispatch, body, framed
from tests.spark.live_query import events

ONCE = dispatches_once.target
TEN = datetime(2013, 1, 1, 10, 0, tzinfo=UTC)
LATE_AFTER = 120
"""In minutes."""

Event = tuple[str, int]
"""Parcel, minutes after ten."""

Place = tuple[int, int]
"""Partition, offset."""


class Once(Query):
    """The pipeline over the topics of a test."""

    def __init__(
        self,
        spark: SparkSession,
        settings: SparkSettings,
        registry: Registry,
        topics: Topics,
        pipeline: Pipeline = dispatches_once,
    ) -> None:
        super().__init__(spark, settings, registry, topics, pipeline)
        self.source = topics.catalog.topic(DISPATCHED).name

    def dispatch(self, *found: Event, partition: int = 0) -> None:
        values = [body(a_dispatch(parcel_id=name, dispatched_at=TEN + timedelta(minutes=at))) for name, at in found]
        self.topics.send(*[framed(self.topics.schema_ids[DISPATCHED], value) for value in values], partition=partition)

    def cut_off_between_partitions(self, minute: int) -> list[str]:
        """As `cut_off_while` does; the parcels that were sent meanwhile, each in both partitions, and in the second one of another time."""
        sent = list[str]()

        def send() -> None:
            names = [f"M{len(sent) + number}" for number in range(60)]
            sent.extend(names)
            self.dispatch(*[(name, minute) for name in names])
            self.dispatch(*[(name, minute - 1) for name in reversed(names)], partition=1)

        self.cut_off_while(send)
        return sent

    def let_through(self) -> list[tuple[str, int, Place]]:
        """Parcel, minutes after ten and the place that the id names, of each record, in their order."""
        found = []
        for event, headers, _ in events(self.topics, ONCE):
            minute = round((event["dispatched_at"] - TEN) / timedelta(minutes=1))
            of = Coordinate.in_event(self.source, headers["ce_id"])
            assert of is not None
            found.append((event["parcel_id"], minute, (of.partition, of.offset)))
        return found

    def named(self) -> list[tuple[str, int]]:
        """Parcel and minutes after ten of each record, in the order of their names."""
        return sorted((name, minute) for name, minute, _ in self.let_through())


class Oracle:
    """What is let through and what is late, in plain Python, of batches of records, each with the watermark behind it."""

    def __init__(self, late_after: int = LATE_AFTER) -> None:
        self._late_after = late_after
        self._until: dict[str, int] = {}
        self._newest = self._watermark = -(10**6)
        self.let_through: list[tuple[str, int, Place]] = []
        self.late: list[Place] = []

    def take(self, batch: Sequence[tuple[Event, Place]]) -> None:
        for (name, minute), place in sorted(batch, key=lambda each: each[1]):
            if minute <= self._watermark:
                self.late.append(place)
            elif name not in self._until:
                self._until[name] = minute + self._late_after
                self.let_through.append((name, minute, place))
        self._newest = max([self._newest, *(minute for (_, minute), _ in batch)])
        self._watermark = max(self._watermark, self._newest - self._late_after)
        self._until = {name: until for name, until in self._until.items() if until > self._watermark}

"""The join of the parcels as a query of a test, and what its records say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from pyspark.sql import SparkSession

from contracts.servers.registry import Registry
from spark.pipeline import Pipeline
from spark.runtime.settings import SparkSettings
from tests.sample.pipelines.parcel_trips import parcel_trips
from tests.spark.aggregates.test_stateful import Query
from tests.spark.examples import DELIVERED, DISPATCHED, Topics, a_delivery, a_dispatch, body, framed

TRIPS = parcel_trips.target
TEN = datetime(2013, 1, 1, 10, 0, tzinfo=UTC)
BOUND = timedelta(hours=20)

Event = tuple[str, int]
"""Parcel, hours after ten."""


class Trips(Query):
    """The pipeline over the topics of a test."""

    def __init__(
        self,
        spark: SparkSession,
        settings: SparkSettings,
        registry: Registry,
        topics: Topics,
        pipeline: Pipeline = parcel_trips,
    ) -> None:
        super().__init__(spark, settings, registry, topics, pipeline)
        self.names = {
            DISPATCHED: topics.catalog.topic(DISPATCHED).name,
            DELIVERED: topics.catalog.topic(DELIVERED).name,
        }

    def dispatch(self, *found: Event, partition: int = 0, **fields: object) -> None:
        values = [
            body(a_dispatch(parcel_id=name, dispatched_at=TEN + timedelta(hours=at), **fields)) for name, at in found
        ]
        self._send(DISPATCHED, values, partition)

    def deliver(self, *found: Event, partition: int = 0, **fields: object) -> None:
        schema = self.topics.catalog.schema(DELIVERED)
        values = [
            body(a_delivery(parcel_id=name, delivered_at=TEN + timedelta(hours=at), **fields), schema)
            for name, at in found
        ]
        self._send(DELIVERED, values, partition)

    def _send(self, topic: str, values: Sequence[bytes], partition: int) -> None:
        self.topics.send(
            *[framed(self.topics.schema_ids[topic], value) for value in values], partition=partition, topic=topic
        )

    def cut_off_between_partitions(self, dispatched: int, delivered: int) -> list[str]:
        """As `cut_off_while` does; the parcels that were sent meanwhile, each of which has its delivery."""
        sent = list[str]()

        def send() -> None:
            # Others each time: two of a name would pair crosswise.
            names = [f"M{len(sent) + number}" for number in range(60)]
            sent.extend(names)
            self.dispatch(*[(name, dispatched) for name in names])
            self.deliver(*[(name, delivered) for name in names], partition=1)

        self.cut_off_while(send)
        return sent

    def trips(self) -> Counter[tuple[str, datetime, datetime | None]]:
        """Parcel, when it was dispatched and when it was delivered, of each record that was made."""
        return Counter((event["parcel_id"], event["dispatched_at"], event["delivered_at"]) for event in self.written())


def trip(name: str, dispatched: int, delivered: int | None) -> tuple[str, datetime, datetime | None]:
    """As `Trips.trips` has it, of hours after ten."""
    at = None if delivered is None else TEN + timedelta(hours=delivered)
    return name, TEN + timedelta(hours=dispatched), at

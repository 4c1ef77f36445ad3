"""The union of dispatched and lost parcels as a query of a test, and what its groups say, counted in plain Python."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from pyspark.sql import SparkSession

from contracts.servers.registry import Registry
from spark.pipeline import Pipeline
from spark.runtime.settings import SparkSettings
from tests.sample.pipelines.losses_by_origin import losses_by_origin
from tests.spark.aggregates.percentile import percentile
from tests.spark.aggregates.test_stateful import Query
from tests.spark.examples import DISPATCHED, LOST, Topics, a_dispatch, a_loss, body, framed

LOSSES = losses_by_origin.target
TEN = datetime(2013, 1, 1, 10, 0, tzinfo=UTC)
WINDOW, SLIDE = timedelta(hours=1), timedelta(minutes=15)


class Parcel(NamedTuple):
    """One that left `minutes` after ten with a `delay`, in minutes; None of one that was due then, and lost."""

    origin: str
    minutes: int
    delay: int | None

    @property
    def at(self) -> datetime:
        return TEN + timedelta(minutes=self.minutes)


class Losses(Query):
    """The pipeline over the topics of a test."""

    def __init__(
        self,
        spark: SparkSession,
        settings: SparkSettings,
        registry: Registry,
        topics: Topics,
        pipeline: Pipeline = losses_by_origin,
    ) -> None:
        super().__init__(spark, settings, registry, topics, pipeline)
        self.names = {name: topics.catalog.topic(name).name for name in (DISPATCHED, LOST)}
        self._offsets: dict[tuple[str, int], int] = defaultdict(int)
        self.sent: dict[str, Parcel] = {}
        """By coordinate."""

    def parcels(self, *parcels: Parcel, partition: int = 0) -> None:
        """Each to its topic, in this order."""
        for topic in (DISPATCHED, LOST):
            own = [each for each in parcels if (each.delay is None) == (topic == LOST)]
            values = [framed(self.topics.schema_ids[topic], _body(each, self.topics)) for each in own]
            if values:
                self.topics.send(*values, partition=partition, topic=topic)
            for each in own:
                offset = self._offsets[topic, partition]
                self.sent[f"{self.names[topic]}/{partition}/{offset}"] = each
                self._offsets[topic, partition] += 1

    def junk(self, topic: str, partition: int = 0) -> str:
        """A record that can't be read; its coordinate."""
        self.topics.send(b"junk", partition=partition, topic=topic)
        self._offsets[topic, partition] += 1
        return f"{self.names[topic]}/{partition}/{self._offsets[topic, partition] - 1}"


def _body(parcel: Parcel, topics: Topics) -> bytes:
    if parcel.delay is None:
        return body(a_loss(origin=parcel.origin, due_at=parcel.at), topics.catalog.schema(LOST))
    return body(a_dispatch(origin=parcel.origin, dispatched_at=parcel.at, late_minutes=parcel.delay))


def windows_of(parcel: Parcel) -> Iterator[datetime]:
    """The begins of those that it lies in."""
    begin = TEN - WINDOW + (parcel.at - TEN) // SLIDE * SLIDE
    while begin < parcel.at:
        begin += SLIDE
        if begin <= parcel.at < begin + WINDOW:
            yield begin


def groups_of(parcels: Sequence[tuple[Parcel, Collection[datetime]]]) -> dict[str, dict[str, Any]]:
    """What `update` writes of parcels, each of which is counted in windows with these begins, by the groups' keys."""
    groups = defaultdict(list)
    for parcel, begins in parcels:
        for begin in begins:
            groups[parcel.origin, begin].append(parcel)
    found = {}
    for (origin, begin), members in groups.items():
        delays = sorted(each.delay for each in members if each.delay is not None)
        lost = len(members) - len(delays)
        window_id = f"{origin}/{begin:%Y-%m-%dT%H:%M:%SZ}"
        found[window_id] = {
            "window_id": window_id,
            "origin": origin,
            "begins_at": begin,
            "ends_at": begin + WINDOW,
            "dispatches": len(delays),
            "losses": lost,
            "lost_share": lost / len(members),
            "delay_mean_minutes": statistics.fmean(delays) if delays else None,
            "delay_p95_minutes": percentile(delays, 0.95) if delays else None,
            "is_final": False,
        }
    return found


def whole(parcels: Sequence[Parcel]) -> dict[str, dict[str, Any]]:
    """As `groups_of`, of parcels none of which is late."""
    return groups_of([(each, [*windows_of(each)]) for each in parcels])

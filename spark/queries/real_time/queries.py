"""The queries of one pipeline, of which one runs, and for some seconds another one that takes over from it: `Queries`."""

from __future__ import annotations

import itertools
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import structlog
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark.derivation.derivation import Derivation
from spark.lookups.broadcasts import sides_of
from spark.lookups.dimensions import Dimension
from spark.pipeline import Pipeline
from spark.queries.real_time.baton import Baton
from spark.queries.real_time.changeover import change_over
from spark.queries.real_time.query import has_slots_for_two, read, start
from spark.records.topic_schemas import TopicSchemas
from spark.runtime.errors import QueryFailed
from spark.runtime.quiet import quiet_compilers, quietly
from spark.runtime.settings import SparkSettings
from spark.sinks.kafka.at_least_once import kafka_records, observed
from spark.sinks.kafka.follower import Follower
from spark.sinks.kafka.sink import Route
from spark.sinks.kafka.tail import Taken, not_taken

_MOST_READ_AGAIN = 100_000
"""So many records a query that takes over may read a second time, while its partitions wait."""

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Running:
    """A query and what it is made of; `interval` is the last one that has ended. A query `gives` its partitions away, where it can, and `takes` those of the one
    before, if there was one.
    """

    query: StreamingQuery
    checkpoint: Path
    versions: Mapping[str, object]
    dimensions: Mapping[str, Dimension]
    gives: Baton | None
    takes: Baton | None
    interval: int = -1


class Queries:
    """Starts queries with the schemas of now."""

    def __init__(
        self,
        spark: SparkSession,
        settings: SparkSettings,
        pipeline: Pipeline,
        route: Route,
        derivation: Derivation,
        schemas: TopicSchemas,
        interval_seconds: float,
    ) -> None:
        self._spark, self._settings, self._route = spark, settings, route
        self._lookups, self._held = pipeline.lookups, pipeline.dimensions
        self._derivation, self._schemas = derivation, schemas
        self._interval_seconds = interval_seconds
        self._numbers = itertools.count()
        self._taken: Mapping[int, Taken] = {}
        self._running: list[Running] = []
        self._spent: list[Baton] = []

    def begin(self, taken: Mapping[int, Taken], dimensions: Mapping[str, Dimension], *, gives: bool) -> Running:
        """The first query. `gives`: another one may take over."""
        self._drop_spent()
        self._taken = taken
        positions = {partition: each.position for partition, each in taken.items()}
        baton = Baton(self._spark, positions) if gives and has_slots_for_two(self._spark, len(positions)) else None
        return self._begin(positions, dimensions, baton, None)

    def change_over(
        self,
        before: Running,
        baton: Baton,
        dimensions: Mapping[str, Dimension],
        follower: Follower,
        ends: Mapping[int, int],
        tend: Callable[[], None],
    ) -> Running:
        """From `before`, which gives its records away by the `baton`, to a query with these dimensions, and the schemas of now. `ends` are those of the source
        topic. Raises as `changeover.change_over`; then stop all.
        """
        began = time.monotonic()
        # Of queries that were stopped some seconds ago at least.
        self._drop_spent()
        positions = {partition: each.position for partition, each in follower.found().items()}
        again = sum(max(end - positions.get(partition, end), 0) for partition, end in ends.items())
        if again > _MOST_READ_AGAIN:
            raise QueryFailed(f"it would read {again:,} records once more")
        quiet_compilers(self._spark)
        baton.watch()
        gives = Baton(self._spark, positions)
        after = quietly(self._spark, lambda: self._begin(positions, dimensions, gives, baton), tend)
        change_over(self._spark, baton, before.query, after.query, follower, positions, tend)
        self._running.remove(before)
        self._spent += [] if before.takes is None else [before.takes]
        shutil.rmtree(before.checkpoint, ignore_errors=True)
        _log.info("changed over", query=self._route.query, seconds=round(time.monotonic() - began, 1))
        return after

    def stop(self) -> None:
        """Stop what runs. Its tasks may outlive it for a moment, and still ask for their batons."""
        with ExitStack() as all_of_them:
            for each in self._running:
                all_of_them.callback(shutil.rmtree, each.checkpoint, ignore_errors=True)
                all_of_them.callback(each.query.stop)
                self._spent += [baton for baton in (each.gives, each.takes) if baton is not None]
            self._running.clear()

    def versions(self, dimensions: Mapping[str, Dimension]) -> dict[str, object]:
        """Of everything that a query can't be told while it runs."""
        return {
            "schemas": sorted(self._schemas.current.writers),
            "looks_up_others": self._schemas.current.foreign is not None,
            "dimensions": {name: dimensions[name].version for name in self._held},
        }

    def _begin(
        self,
        positions: Mapping[int, int],
        dimensions: Mapping[str, Dimension],
        gives: Baton | None,
        takes: Baton | None,
    ) -> Running:
        raw = read(self._spark, self._settings.kafka, self._route.source, positions)
        raw = raw if takes is None else takes.taken(raw)
        raw = raw if gives is None else gives.kept(raw)
        raw = not_taken(raw, {partition: each.at(positions[partition]) for partition, each in self._taken.items()})
        # Of this query alone: a broadcast that was interrupted with the one before stays failed.
        sides = sides_of(self._lookups, self._derivation.sides, keep=self._settings.live.keep_broadcasts)(dimensions)
        rows = self._derivation.to_rows(self._schemas.current, sides, dimensions)(raw)
        checkpoint = Path(tempfile.mkdtemp(prefix="headrace-live-"))
        try:
            query = start(
                kafka_records(observed(rows, self._route.query, self._lookups), self._route),
                self._settings.kafka,
                # No two that run may have the same name.
                name=f"{self._route.query}-{next(self._numbers)}",
                checkpoint=checkpoint,
                interval_seconds=self._interval_seconds,
            )
        except BaseException:
            shutil.rmtree(checkpoint, ignore_errors=True)
            raise
        running = Running(query, checkpoint, self.versions(dimensions), dimensions, gives, takes)
        self._running.append(running)
        _log.info("started", query=self._route.query, positions=dict(positions), **running.versions)
        return running

    def _drop_spent(self) -> None:
        """Once no task is left that would ask for them."""
        for each in self._spent:
            each.drop()
        self._spent.clear()

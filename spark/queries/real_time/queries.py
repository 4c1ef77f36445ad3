"""The queries of one pipeline, of which one runs, and for some seconds another one that takes over from it: `Queries`."""

from __future__ import annotations

import itertools
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import structlog
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark.derivation.derivation import Derivation
from spark.lookups.broadcasts import sides_of
from spark.lookups.dimensions import Dimension
from spark.pipeline import Pipeline
from spark.queries.real_time.baton import Baton
from spark.queries.real_time.changeover import Changeover
from spark.queries.real_time.query import has_slots_for_two, read, start
from spark.records.topic_schemas import TopicSchemas
from spark.runtime.errors import NotWritten, QueryFailed, StopRequested
from spark.runtime.internals.broadcasts import release
from spark.runtime.internals.real_time import running_tasks
from spark.runtime.metrics import CHANGEOVERS
from spark.runtime.quiet import beside, quiet_compilers, quietly
from spark.runtime.session import temporary_folder
from spark.runtime.settings import SparkSettings
from spark.sinks.kafka.at_least_once import kafka_records, observed
from spark.sinks.kafka.follower import Follower
from spark.sinks.kafka.sink import Route
from spark.sinks.kafka.tail import Taken, not_taken, positions_of

_MOST_READ_AGAIN = 100_000
"""So many records a query that takes over may read a second time, while its partitions wait."""

_RELEASE_SECONDS = 30.0
"""After a query was stopped, until what it held is released."""

_log = structlog.get_logger(__name__)


@dataclass(slots=True, eq=False)
class Running:
    """A query and what it is made of; `interval` is the last one that has ended. Its partitions come by one baton, `from_last`, and go by another, `to_next`. The first
    query's were given to it at once. Both are None where none can follow without a pause.
    """

    query: StreamingQuery
    checkpoint: Path
    versions: Mapping[str, object]
    dimensions: Mapping[str, Dimension]
    to_next: Baton | None
    from_last: Baton | None
    interval: int = -1
    owed: Mapping[int, int] = field(default_factory=dict)
    """Up to these offsets the query before took records; what it took may not be written yet."""


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
        self._stopped: list[Running] = []
        self._stopped_at = 0.0
        # What is taken was not written soon, at the last attempt of a changeover.
        self._is_slow = False

    def begin(self, taken: Mapping[int, Taken], dimensions: Mapping[str, Dimension], *, hands_over: bool) -> Running:
        """The first query. `hands_over`: another one may follow without a pause."""
        self._drop_stopped()
        self._taken = taken
        positions = positions_of(taken)
        if not (hands_over and has_slots_for_two(self._spark, len(positions))):
            return self._begin(positions, dimensions, None, None)
        # All is given, so it holds nothing back. It is there for its filter: the first query then has the later ones' code, compiled before the first changeover.
        given = Baton(self._spark, positions)
        given.give(positions)
        return self._begin(positions, dimensions, Baton(self._spark, positions), given)

    def change_over(
        self,
        before: Running,
        baton: Baton,
        dimensions: Mapping[str, Dimension],
        follower: Follower,
        ends: Mapping[int, int],
        tend: Callable[[], object],
        *,
        quiet: bool,
    ) -> Running:
        """From `before`, which passes its partitions on by the `baton`, to a query with these dimensions, and the schemas of now. `ends` are those of the source
        topic. If `quiet`, what runs has the processor first.

        Raises KafkaException, QueryFailed, and what `tend` raises. Then `before` goes on if the baton was not asked; else stop all.
        """
        began = time.monotonic()
        changeover = Changeover(self._spark, baton, before.query, follower, tend)
        with self._attempt(before, baton):
            changeover.begin()
            self._drop_stopped()
            positions = positions_of(follower.to_commit())
            if away := sorted(baton.partitions - (positions.keys() & ends.keys())):
                raise NotWritten(
                    f"nobody knows how far {self._route.source}, partitions {away}, is taken: brokers do not answer"
                )
            if added := sorted(positions.keys() - baton.partitions):
                raise QueryFailed(f"{self._route.source} has got partitions, {added}: the query begins anew with them")
            again = sum(max(end - positions.get(partition, end), 0) for partition, end in ends.items())
            if self._is_slow or again > _MOST_READ_AGAIN:
                # Before anything is planned.
                changeover.check_written()
            if again > _MOST_READ_AGAIN:
                raise QueryFailed(
                    f"the query is behind: the next one would read {again:,} records once more, and {_MOST_READ_AGAIN:,} at most may wait for that"
                )
            if quiet:
                quiet_compilers(self._spark)
            plan = quietly if quiet else beside
            to_next = Baton(self._spark, positions)
            try:
                after = plan(self._spark, lambda: self._begin(positions, dimensions, to_next, baton), tend)
            except (Py4JError, PySparkException, OSError) as error:
                raise QueryFailed(f"the next query can't be planned: {error}") from error
            after.owed = changeover.pass_partitions_to(after.query)
        self._stop([before])
        _log.info("changed over", query=self._route.query, seconds=round(time.monotonic() - began, 1))
        return after

    def stop(self) -> None:
        """Stop what runs. Its tasks may outlive it for a moment, and still ask for their batons."""
        self._stop(self._running)

    def release_stopped(self) -> None:
        """Of queries that were replaced some time ago, drop the batons and release the dimensions' tables, unless a task of theirs still runs."""
        count = sum(len(each.to_next.partitions) for each in self._running if each.to_next is not None)
        is_time = self._stopped and time.monotonic() > self._stopped_at + _RELEASE_SECONDS
        if is_time and running_tasks(self._spark) <= count:
            self._drop_stopped()

    def versions(self, dimensions: Mapping[str, Dimension]) -> dict[str, object]:
        """Of everything that a query can't be told while it runs."""
        return {
            "schemas": sorted(self._schemas.current.writers),
            "looks_up_others": self._schemas.current.foreign is not None,
            "dimensions": {name: dimensions[name].version for name in self._held},
        }

    @contextmanager
    def _attempt(self, before: Running, baton: Baton) -> Iterator[None]:
        """Of a changeover. If it fails before the baton is asked, nothing is left but `before`."""
        try:
            yield
        except Exception as error:
            self._is_slow = isinstance(error, NotWritten)
            if not isinstance(error, StopRequested):
                CHANGEOVERS.labels(self._route.query, "failed").inc()
            if not baton.is_asked:
                self._stop([each for each in self._running if each is not before])
                baton.drop()
            raise
        self._is_slow = False
        CHANGEOVERS.labels(self._route.query, "done").inc()

    def _begin(
        self,
        positions: Mapping[int, int],
        dimensions: Mapping[str, Dimension],
        to_next: Baton | None,
        from_last: Baton | None,
    ) -> Running:
        raw = read(self._spark, self._settings.kafka, self._route.source, positions)
        raw = raw if from_last is None else from_last.of_second(raw)
        raw = raw if to_next is None else to_next.of_first(raw)
        raw = not_taken(raw, {partition: each.at(positions[partition]) for partition, each in self._taken.items()})
        # Of this query alone: a broadcast that was interrupted with the one before stays failed.
        sides = sides_of(self._lookups, self._derivation.sides, keep=self._settings.live.keep_broadcasts)(dimensions)
        rows = self._derivation.to_rows(self._schemas.current, sides, dimensions)(raw)
        checkpoint = Path(tempfile.mkdtemp(prefix="headrace-live-", dir=temporary_folder()))
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
        running = Running(query, checkpoint, self.versions(dimensions), dimensions, to_next, from_last)
        self._running.append(running)
        _log.info("started", query=self._route.query, positions=dict(positions), **running.versions)
        return running

    def _stop(self, those: Sequence[Running]) -> None:
        with ExitStack() as all_of_them:
            for each in those:
                all_of_them.callback(shutil.rmtree, each.checkpoint, ignore_errors=True)
                all_of_them.callback(each.query.stop)
            self._stopped += those
            self._stopped_at = time.monotonic()
            self._running = [each for each in self._running if each not in those]

    def _drop_stopped(self) -> None:
        """When no task of a query that was stopped runs: without its batons it would take records again, without its tables it would fail."""
        for baton in _batons(self._stopped) - _batons(self._running):
            baton.drop()
        for each in self._stopped:
            release(each.query)
        self._stopped.clear()


def _batons(running: Iterable[Running]) -> set[Baton]:
    return {baton for each in running for baton in (each.from_last, each.to_next) if baton is not None}

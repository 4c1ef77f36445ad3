"""A pipeline in real-time mode, within milliseconds: `RealTime`.

Spark's checkpoint lasts as long as one query and lies in a folder of the driver's own: where to go on is told by the
consumer group's offsets and by the target topics themselves (`spark.sinks.kafka.tail`). So a query can be ended and started anew at any
moment, which is how it recovers. A new schema or dimension version it gets from a second query, which takes over while the first one runs
(`spark.queries.real_time.changeover`).
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass

import structlog
from confluent_kafka import KafkaException
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from contracts.definitions.catalog import Catalog
from contracts.errors import ConsumeError
from contracts.servers.registry import Registry
from spark.derivation.derivation import Derivation, route, target_schemas
from spark.lookups.dimensions import Dimensions
from spark.pipeline import Pipeline
from spark.queries.real_time.baton import Baton
from spark.queries.real_time.every import Every
from spark.queries.real_time.headway import Headway
from spark.queries.real_time.ids_ahead import ids_ahead
from spark.queries.real_time.meter import Meter
from spark.queries.real_time.positions import RealTimePositions
from spark.queries.real_time.queries import Queries, Running
from spark.queries.real_time.query import (
    CHECKPOINT_ON_DISK,
    check_slots,
    configured,
    drain,
    failure_of,
)
from spark.queries.real_time.renewals import Renewal, Renewals
from spark.queries.real_time.tending import OUTAGES, Tending
from spark.records.decode import unknown_id
from spark.records.topic_schemas import TopicSchemas
from spark.runtime.aside import aside
from spark.runtime.errors import QueryFailed, StopRequested
from spark.runtime.internals.real_time import rehearse
from spark.runtime.lifecycle import Lifecycle
from spark.runtime.metrics import RESTARTS, sources_of
from spark.runtime.quiet import quietly
from spark.runtime.settings import SparkSettings
from spark.sinks.kafka.at_least_once import written
from spark.sinks.kafka.counts import count_unmatched
from spark.sinks.kafka.follower import Follower
from spark.sinks.kafka.offset_note import Mark
from spark.sinks.kafka.tail import positions_of
from spark.sources.checkpoint_offsets import CheckpointOffsets, checkpoint_folder
from spark.sources.source_topic import SourceTopic

_WATCH_SECONDS = 0.1
_LOOK_SECONDS = 1.0
"""Between two looks at the schemas: a record whose schema the query doesn't know ends it, which is a pause."""
_REHEARSE_SECONDS = (30.0, 600.0)
"""From one rehearsal to the next, at least and at most; in between, half of the process's age."""
_LEAVE_SECONDS = 10.0
_MOST_STEP_SECONDS = 1.0
"""By which the clock may differ from one that nobody sets, before the query is renewed."""
_REASON_CHARACTERS = 500

_log = structlog.get_logger(__name__)


class RealTime:
    """Runs a query for as long as its schemas and dimensions are the newest; then another one takes over, or begins when it has ended."""

    def __init__(
        self,
        spark: SparkSession,
        pipeline: Pipeline,
        settings: SparkSettings,
        catalog: Catalog,
        registry: Registry,
        lifecycle: Lifecycle,
    ) -> None:
        """Raises NotAProducer if the target's contract does not list the pipeline, PipelineUnfit."""
        self._lookups = pipeline.lookups
        self._spark = spark
        self._settings = settings
        self._lifecycle = lifecycle
        self._route = route(pipeline, catalog)
        source = catalog.topic(pipeline.source)
        self._schemas = TopicSchemas(registry, source, catalog.schema(pipeline.source))
        self._dimensions = Dimensions(spark, settings.s3, [catalog.dimension(name) for name in pipeline.dimensions])
        own = target_schemas(pipeline, catalog, registry)
        self._source = SourceTopic(settings.kafka, source.name)
        ids = [each.id for each in own]
        derivation = Derivation(spark, pipeline, catalog, *ids, encode_once=settings.live.encode_once)
        self._positions = RealTimePositions(
            settings,
            self._route,
            CheckpointOffsets(settings.s3, checkpoint_folder(pipeline.name)),
            lifecycle.epoch,
            lifecycle.notice_seconds,
        )
        # A record that is left out would be a gap for good, and the parts of one tell only together: there only the ends of intervals tell positions.
        self._one_of_each = not self._route.filters
        self._interval_seconds = settings.live.interval(one_of_each=self._one_of_each)
        self._queries = Queries(
            spark, settings, pipeline, self._route, derivation, self._schemas, self._interval_seconds
        )
        self._headway = Headway(self._route.query)
        self._rehearsals = _Rehearsals()
        self._has_met_unknown = False
        self._renewals = Renewals(
            self._route.query,
            self._source,
            own,
            self._schemas,
            self._dimensions,
            self._positions,
            self._queries,
            self._headway,
            one_of_each=self._one_of_each,
        )

    def run(self) -> None:
        """Return when asked to stop.

        Raises TooFewSlots, PositionsDisagree if it can't be told where to go on, PositionsTooLong, TakenOver, RegistryMadeAnew, SinkRefused when too many
        records are bad, and QueryFailed when query after query fails.
        """
        if self._interval_seconds < self._settings.live.interval_seconds:
            _log.warning(
                "the intervals are shorter than HEADRACE_LIVE__INTERVAL_SECONDS: where not each record makes one, only their ends tell positions",
                query=self._route.query,
                seconds=self._interval_seconds,
            )
        with ExitStack() as ending:
            ending.callback(self._positions.close)
            # Raised while it is found out where to go on, which the next start does, too.
            with suppress(StopRequested):
                if self._dimensions.wait(self._lifecycle.stopping):
                    with configured(self._spark, CHECKPOINT_ON_DISK):
                        self._run_queries()
                    if not self._leave():
                        ending.pop_all()

    def _leave(self) -> bool:
        """Commit how far it came: whoever stops the process gives it some seconds. Return False if that still goes on then, and has its connections in use."""
        leaving = aside("leave", functools.partial(self._positions.leave, _LEAVE_SECONDS))
        try:
            leaving.result(2 * _LEAVE_SECONDS)
        except (KafkaException, ConsumeError, StopRequested, TimeoutError) as error:
            # The next start finds it in the topics as well.
            reason = str(error) or "brokers do not answer"
            _log.warning("positions not committed", query=self._route.query, error=reason)
        return leaving.done()

    def _run_queries(self) -> None:
        while not self._lifecycle.stopping.is_set():
            try:
                failure = self._run_query()
            except OUTAGES as error:
                failure = f"an outage, {type(error).__name__}: {error}"
            if failure is not None:
                self._recover(failure)

    def _run_query(self) -> str | None:
        """Run a query, and those that take over from it, until a pause is needed or a stop is asked for. Return why the last one failed, None if it did not."""
        self._schemas.renew()
        drain(self._spark, self._lifecycle.stopping)
        self._lifecycle.check_lease()
        taken = self._positions.take_up(self._lifecycle.stopping)
        self._source.expect(self._positions.topic_id)
        positions = positions_of(taken)
        if self._has_met_unknown:
            # Such ids often come together, and each would end a query.
            ahead = ids_ahead(self._settings.kafka, self._route, positions)
            self._schemas.look_up_together(ahead, self._lifecycle.stopping)
            self._has_met_unknown = False
        # After the registry, which is waited for without a limit.
        dimensions = self._dimensions.newest()
        written_since = self._headway.start(positions)
        if self._one_of_each:
            self._lifecycle.progress.take_in(self._route.query, written_since)
        check_slots(self._spark, self._settings.spark.master, self._route.source, len(positions))
        with ExitStack() as ending:
            kafka, live = self._settings.kafka, self._settings.live
            meter = ending.enter_context(Meter(kafka, self._route, positions, live.dead_letter_limit))
            follower = None
            if self._one_of_each:
                follower = ending.enter_context(Follower(kafka, self._route, taken, meter.ends))
            ending.callback(self._queries.stop)
            running = self._queries.begin(taken, dimensions, hands_over=self._one_of_each)
            tending = Tending(
                self._route, self._lifecycle, self._positions, self._headway, meter, follower, live.commit_seconds
            )
            with suppress(StopRequested):
                return self._watch(running, tending)
            return None

    def _watch(self, running: Running, tending: Tending) -> str | None:
        look, ends, clock = Every(_LOOK_SECONDS), tending.ends, _clock()
        self._renewals.start()
        self._rehearsals.put_off()
        while not self._lifecycle.stopping.wait(_WATCH_SECONDS):
            if not running.query.isActive:
                return failure_of(running.query)
            tending()
            if self._rehearsals.is_due():
                self._rehearse(running, tending)
            if not look.is_due():
                continue
            if tending.has_answers and abs(_clock() - clock) > _MOST_STEP_SECONDS:
                # Each task ends its interval by the clock: one that ended before the others reads nothing until they have.
                _log.warning("renewing the query: the machine's clock was set", query=self._route.query)
                return None
            if tending.has_written(running.owed):
                running.owed = {}
            self._lifecycle.progress.look(running.query, self._route.query, counts=not self._one_of_each)
            try:
                if tending.has_answers and (given_up := tending.given_up()) is not None:
                    return given_up
                # Spark counts what the query before took, and has not written yet, as taken by this one.
                if not running.owed:
                    if self._end_interval(running, tending, ends):
                        # The next one begins by the clock as it is now.
                        clock = _clock()
                    ends = tending.ends
                self._queries.release_stopped()
                renewal = self._renewals.due(running, tending)
            except OUTAGES as error:
                # The query itself waits for brokers, and needs the store only when it starts.
                _log.warning("no look at topics and versions", query=self._route.query, error=str(error))
                continue
            if renewal is None:
                continue
            baton, follower = running.to_next, tending.follower
            if renewal.adds_partitions or baton is None or follower is None:
                return None
            # A step of the clock while the next one begins counts.
            began = _clock()
            after = self._change_over(running, baton, follower, tending, renewal)
            if isinstance(after, _Ended):
                return after.failure
            if after is not running:
                running, clock = after, began
        return None

    def _change_over(
        self, running: Running, baton: Baton, follower: Follower, tending: Tending, renewal: Renewal
    ) -> Running | _Ended:
        """Return the query that has taken over; if none could, the one that runs, or why that one can't go on either."""
        try:
            after = self._queries.change_over(
                running,
                baton,
                renewal.dimensions,
                follower,
                tending.source_ends,
                tending,
                # Soon after the start records are late anyway: the sooner it is over, the better.
                quiet=not renewal.is_practice,
            )
        except (QueryFailed, *OUTAGES) as error:
            reason = str(error)
            has_failed = baton.is_asked or not running.query.isActive or unknown_id(reason) is not None
            goes_on = not has_failed and self._renewals.goes_on_after(error, renewal, tending)
            then = "a pause" if not goes_on else "it was practice" if renewal.is_practice else "it is tried again"
            _log.warning(
                f"the next query could not take over: {then}", query=self._route.query, reason=_in_a_line(reason)
            )
            if goes_on:
                return running
            return _Ended(reason if has_failed else None)
        self._renewals.start()
        return after

    def _rehearse(self, running: Running, meanwhile: Callable[[], object]) -> None:
        try:
            # With full priority it would take the processor from records.
            quietly(self._spark, functools.partial(rehearse, running.query), meanwhile)
        except (Py4JError, PySparkException) as error:
            _log.warning("no rehearsal: the interval's end will take longer", query=self._route.query, error=str(error))
        finally:
            self._rehearsals.put_off()

    def _end_interval(self, running: Running, tending: Tending, before: Mark) -> bool:
        """Commit the last interval that has ended, and say whether one has; `before` are the target topics' ends of a look when it hadn't."""
        progress = running.query.lastProgress
        if progress is None or progress.batchId == running.interval:
            return False
        (source,) = sources_of(progress)
        tending.end_interval({int(p): at for p, at in source["endOffset"][self._route.source].items()}, before)
        # The meter has counted the dead letters.
        done = written(progress.observedMetrics[self._route.query].asDict(), self._lookups)
        count_unmatched(self._route.query, done.unmatched)
        running.interval = progress.batchId
        return True

    def _recover(self, failure: str) -> None:
        """Wait until it is worth trying again. Raises QueryFailed when it isn't any more."""
        RESTARTS.labels(self._route.query).inc()
        unknown = unknown_id(failure)
        if unknown is not None:
            with suppress(StopRequested):
                self._schemas.look_up(unknown.schema_id, self._lifecycle.stopping, one_by_one=True)
            self._has_met_unknown = unknown.schema_id not in self._schemas.current.writers
            return
        reason = _in_a_line(failure)
        pause = self._headway.pause_seconds(reason)
        _log.error("query failed, and is started again", query=self._route.query, reason=reason, pause_seconds=pause)
        self._lifecycle.stopping.wait(pause)


@dataclass(frozen=True, slots=True)
class _Ended:
    """A query has to be, for the next one to begin; `failure` is why, if it did not end for that alone."""

    failure: str | None


class _Rehearsals:
    """Often at first, while there is much to compile, then seldom: records wait for the processor meanwhile."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self.put_off()

    def is_due(self) -> bool:
        """Whether it is time for one."""
        return time.monotonic() >= self._at

    def put_off(self) -> None:
        """One has been made, or a query has just begun."""
        now = time.monotonic()
        least, most = _REHEARSE_SECONDS
        self._at = now + min(max((now - self._began) / 2, least), most)


def _in_a_line(reason: str) -> str:
    """The first line of what Spark tells, cut short."""
    return (reason.strip().splitlines() or ["no reason was told"])[0][:_REASON_CHARACTERS]


def _clock() -> float:
    """By how much the clock differs from one that nobody sets, in seconds; a machine that sleeps stops the latter."""
    return time.time() - time.monotonic()

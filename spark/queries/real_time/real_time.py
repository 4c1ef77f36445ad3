"""A pipeline in real-time mode, within milliseconds: `RealTime`.

Spark's checkpoint lasts as long as one query and lies in a folder of the driver's own: where to go on is told by the
consumer group's offsets and by the target topics themselves (`spark.sinks.kafka.tail`). So a query can be ended and started anew at any
moment, which is how it recovers. A new schema or dimension version it gets from a second query, which takes over while the first one runs
(`spark.queries.real_time.changeover`).
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress

import structlog
from botocore.exceptions import BotoCoreError, ClientError
from confluent_kafka import KafkaException
from pyspark.sql import SparkSession

from contracts.definitions.catalog import Catalog
from contracts.servers.registry import Registry
from spark.derivation.derivation import Derivation, route, target_schemas
from spark.lookups.dimensions import Dimension, Dimensions
from spark.pipeline import Pipeline
from spark.queries.real_time.failures import Failures, stuck
from spark.queries.real_time.meter import Meter
from spark.queries.real_time.positions import RealTimePositions
from spark.queries.real_time.queries import Queries, Running
from spark.queries.real_time.query import (
    CHECKPOINT_ON_DISK,
    DELIVERY_SECONDS,
    check_slots,
    configured,
    drain,
    failure_of,
)
from spark.records.decode import unknown_id
from spark.records.topic_schemas import TopicSchemas
from spark.runtime.errors import NotWritten, QueryFailed, StopRequested
from spark.runtime.internals.real_time import rehearse
from spark.runtime.lifecycle import Lifecycle
from spark.runtime.metrics import BEHIND, RESTARTS, sources_of
from spark.runtime.quiet import quietly
from spark.runtime.settings import SparkSettings
from spark.sinks.kafka.at_least_once import written
from spark.sinks.kafka.counts import count_unmatched
from spark.sinks.kafka.follower import Follower
from spark.sinks.kafka.offset_note import Mark
from spark.sources.checkpoint_offsets import CheckpointOffsets, checkpoint_folder
from spark.sources.source_topic import SourceTopic

_WATCH_SECONDS = 0.1
_LOOK_SECONDS = 1.0
"""Between two looks at the topics' ends, and at the schemas: a record of a new version that comes before a query knows it is a pause."""
_DIMENSIONS_SECONDS = 5.0
"""Between two looks at the dimensions' versions, and at the topics' own."""
_STUCK_SECONDS = DELIVERY_SECONDS + 60.0
"""For so long a partition may have records and not move. If the producer gave one up, its task learns of it only at the next record."""
_CLOSE_LOOK_SECONDS = 60.0
"""Between two looks at what such a partition stands before; one may take ten seconds."""
_MOST_ATTEMPTS, _ATTEMPT_SECONDS = 3, 10.0
"""So often, and with so much between, another query is to take over; then the one that runs is ended for it."""
_REHEARSE_SECONDS = (1.0, 600.0)
"""From one rehearsal to the next, at least and at most; in between, a sixth of the process's age."""
_LEAVE_SECONDS = 10.0
_MOST_STEP_SECONDS = 1.0
"""By which the clock may differ from one that nobody sets, before the query is renewed."""
_REASON_CHARACTERS = 500
_OUTAGES = (KafkaException, BotoCoreError, ClientError)
"""Of the brokers, or of the object store."""

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
        self._own = target_schemas(pipeline, catalog, registry)
        self._source = SourceTopic(settings.kafka, source.name)
        ids = [each.id for each in self._own]
        derivation = Derivation(spark, pipeline, catalog, *ids, encode_once=settings.live.encode_once)
        self._positions = RealTimePositions(
            settings,
            self._route,
            CheckpointOffsets(settings.s3, checkpoint_folder(pipeline.name)),
            lifecycle.epoch,
            lifecycle.notice_seconds,
        )
        # Else a record that is left out would be a gap for good, and parts tell only together.
        self._one_of_each = not (self._route.filters or self._route.parts)
        self._began = time.monotonic()
        self._interval_seconds = settings.live.interval(one_of_each=self._one_of_each)
        self._queries = Queries(
            spark, settings, pipeline, self._route, derivation, self._schemas, self._interval_seconds
        )
        self._failures = Failures(self._route.query)
        self._told: dict[int, int] = {}  # the positions up to which records are counted
        self._due: dict[int, int] = {}  # the source topic's ends then
        self._stuck_since: dict[int, float] = {}
        self._written_then: Mark | None = None
        """The target topics' ends when a partition had been stuck for too long."""
        self._look_closely = _Every(_CLOSE_LOOK_SECONDS, at_once=True)

    def run(self) -> None:
        """Return when asked to stop.

        Raises TooFewSlots, PositionsDisagree if it can't be told where to go on, SinkRefused when too many records are bad,
        and QueryFailed when query after query fails.
        """
        if not self._dimensions.wait(self._lifecycle.stopping):
            return
        if self._interval_seconds < self._settings.live.interval_seconds:
            _log.warning(
                "the intervals are shorter than HEADRACE_LIVE__INTERVAL_SECONDS: where not each record makes one, only their ends tell positions",
                query=self._route.query,
                seconds=self._interval_seconds,
            )
        try:
            with configured(self._spark, CHECKPOINT_ON_DISK):
                self._run_queries()
            self._leave()
        except StopRequested:
            pass  # while it was found out where to go on, so there is nothing new to commit
        finally:
            self._positions.close()

    def _leave(self) -> None:
        try:
            # Whoever stops it gives it some seconds.
            self._positions.leave(_LEAVE_SECONDS)
        except (KafkaException, StopRequested) as error:
            # The next start finds it in the topics as well.
            _log.warning("positions not committed", query=self._route.query, error=str(error))

    def _run_queries(self) -> None:
        while not self._lifecycle.stopping.is_set():
            try:
                failure = self._run_query()
            except _OUTAGES as error:
                failure = f"an outage, {type(error).__name__}: {error}"
            if failure is not None:
                self._recover(failure)

    def _run_query(self) -> str | None:
        """Until it is outdated and no other one could take over, or a stop is asked for; why it failed, if it did."""
        self._schemas.renew()
        dimensions = self._dimensions.newest()
        drain(self._spark, self._lifecycle.stopping)
        self._lifecycle.check_lease()
        taken = self._positions.find(self._lifecycle.stopping)
        self._source.expect(self._positions.topic_id)
        positions = {partition: each.position for partition, each in taken.items()}
        self._failures.started(positions)
        if self._one_of_each and self._told:
            # What was written between the last commit of the query before and its end.
            self._count(positions)
        self._told, self._stuck_since, self._written_then = positions, {}, None
        check_slots(self._spark, self._settings.spark.master, self._route.source, len(positions))
        with ExitStack() as ending:
            kafka = self._settings.kafka
            meter = ending.enter_context(Meter(kafka, self._route, positions, self._settings.live.dead_letter_limit))
            follower = None
            if self._one_of_each:
                follower = ending.enter_context(Follower(kafka, self._route, taken, meter.ends))
            ending.callback(self._queries.stop)
            running = self._queries.begin(taken, dimensions, hands_over=self._one_of_each)
            with suppress(StopRequested):
                return self._watch(running, meter, follower)
            return None

    def _watch(self, running: Running, meter: Meter, follower: Follower | None) -> str | None:
        earlier_ends = meter.ends
        tend = self._tending(meter, follower)
        look, dimensions = _Every(_LOOK_SECONDS, at_once=True), _Every(_DIMENSIONS_SECONDS, at_once=True)
        attempt_at = 0.0
        rehearse_at = self._next_rehearsal()
        clock = _clock()
        attempts = 0
        while not self._lifecycle.stopping.wait(_WATCH_SECONDS):
            if not running.query.isActive:
                return failure_of(running.query)
            has_looked = tend()
            if time.monotonic() >= rehearse_at:
                # With full priority it would take the processor from records.
                quietly(self._spark, functools.partial(rehearse, running.query), tend)
                rehearse_at = self._next_rehearsal()
            if not (has_looked and look.is_due()):
                continue
            if abs(_clock() - clock) > _MOST_STEP_SECONDS:
                # Each task ends its interval by the clock: one that ended before the others reads nothing until they have.
                _log.warning("renewing the query: the machine's clock was set", query=self._route.query)
                return None
            if follower is not None and follower.has_reached(running.owed):
                running.owed = {}
            self._lifecycle.progress.look(running.query, self._route.query, counts=not self._one_of_each)
            ends = meter.ends
            try:
                if follower is not None and (given_up := self._given_up(meter, follower)):
                    return f"nothing came of the next records of {self._route.source}, partitions {given_up}, in {_STUCK_SECONDS:.0f} s"
                # Spark counts what the query before took, and has not written yet, as taken by this one.
                if not running.owed:
                    if self._commit_interval(running, meter, follower, earlier_ends):
                        # The next one begins by the clock as it is now.
                        clock = _clock()
                    earlier_ends = ends
                if time.monotonic() < attempt_at:
                    continue
                there = running.dimensions
                if dimensions.is_due():
                    for each in self._own:
                        each.check()
                    self._source.check()
                    if added := self._positions.added():
                        _log.info("renewing the query", query=self._route.query, added_partitions=added)
                        return None
                    there = self._dimensions.newest()
                newest = self._newer(running, there)
                if newest is None:
                    continue
            except _OUTAGES as error:
                # The query itself waits for brokers, and needs the store only when it starts.
                _log.warning("no look at topics and versions", query=self._route.query, error=str(error))
                continue
            _log.info("renewing the query", query=self._route.query, **self._queries.versions(newest))
            baton = running.to_next
            if baton is None or follower is None:
                return None
            # A step of the clock while the next one begins counts.
            began = _clock()
            try:
                running = self._queries.change_over(running, baton, newest, follower, meter.source_ends, tend)
                attempts, clock = 0, began
            except (QueryFailed, *_OUTAGES) as error:
                reason = str(error)
                attempts += not isinstance(error, (NotWritten, *_OUTAGES))
                has_failed = baton.is_asked or not running.query.isActive or unknown_id(reason) is not None
                goes_on = not has_failed and attempts < _MOST_ATTEMPTS
                _log.warning(
                    "the next query could not take over: " + ("it is tried again" if goes_on else "a pause"),
                    query=self._route.query,
                    reason=_in_a_line(reason),
                )
                if goes_on:
                    attempt_at = time.monotonic() + _ATTEMPT_SECONDS
                    continue
                # Else the next start counts as no restart.
                return reason if has_failed else None
        return None

    def _tending(self, meter: Meter, follower: Follower | None) -> Callable[[], bool]:
        """What goes on while something else takes long: the limit of dead letters, what is written, the lease, metrics and positions. It returns whether the brokers
        have answered lately, and raises StopRequested when asked to stop.
        """
        watch, look = _Every(_WATCH_SECONDS, at_once=True), _Every(_LOOK_SECONDS, at_once=True)
        commit = _Every(self._settings.live.commit_seconds)
        is_written = None if follower is None else follower.has_reached
        has_looked = True

        def look_at_topics() -> None:
            ends = meter.look()
            if follower is not None:
                BEHIND.labels(self._route.query).set(follower.behind(ends))

        def tend() -> bool:
            nonlocal has_looked
            if self._lifecycle.stopping.is_set():
                raise StopRequested("asked to stop")
            if not watch.is_due():
                return has_looked
            if follower is not None:
                follower.read()
            is_look = look.is_due()
            if is_look:
                self._lifecycle.check_lease()
                has_looked = self._has_answer(look_at_topics)
                # Though the look had no answer: one target partition that is away holds back no other one's positions.
                if follower is not None and commit.is_due():
                    has_looked &= self._has_answer(functools.partial(self._commit, follower, meter))
            has_looked &= self._has_answer(lambda: meter.check_dead_letters(is_written), tells=is_look)
            return has_looked

        return tend

    def _has_answer(self, ask: Callable[[], object], *, tells: bool = True) -> bool:
        """Whether brokers answered; else the log tells it, and the query itself waits for them."""
        try:
            ask()
        except _OUTAGES as error:
            if tells:
                _log.warning("brokers do not answer", query=self._route.query, error=str(error))
            return False
        return True

    def _given_up(self, meter: Meter, follower: Follower) -> list[int]:
        """The partitions that have stood before a record for too long, though all that was written by then was read. Raises KafkaException."""
        until = time.monotonic() - _STUCK_SECONDS
        those = {p: self._told[p] for p, since in self._stuck_since.items() if since < until}
        if not those:
            self._written_then = None
            return []
        if self._written_then is None:
            self._written_then = meter.log_ends()
        # What is not read yet is on its way, or an open transaction of somebody else hides it.
        if follower.behind(self._written_then) or not self._look_closely.is_due():
            return []
        return sorted(follower.before_records(those))

    def _newer(self, running: Running, newest: Mapping[str, Dimension]) -> Mapping[str, Dimension] | None:
        """The `newest` dimensions, if these or the schemas of now are newer than the query's."""
        if not self._one_of_each and running.interval < 0 and self._schemas.current.foreign is not None:
            # Renewed before its first interval has ended, again and again, it would never get a position.
            return None
        self._schemas.renew()
        # A table that was made anew may have the version that it had.
        is_same = newest == running.dimensions and self._queries.versions(newest) == running.versions
        return None if is_same else newest

    def _next_rehearsal(self) -> float:
        """When; often at first, while there is much to compile, then seldom, for records wait for the processor meanwhile."""
        now = time.monotonic()
        least, most = _REHEARSE_SECONDS
        return now + min(max((now - self._began) / 6, least), most)

    def _commit_interval(self, running: Running, meter: Meter, follower: Follower | None, earlier_ends: Mark) -> bool:
        """Commit the last interval that has ended, and say whether one has; `earlier_ends` are of a look when it hadn't."""
        progress = running.query.lastProgress
        if progress is None or progress.batchId == running.interval:
            return False
        (source,) = sources_of(progress)
        positions = {int(partition): at for partition, at in source["endOffset"][self._route.source].items()}
        meter.move_to(positions)
        if follower is None:
            self._positions.commit_interval(positions, earlier_ends)
        else:
            # It may know of more than the interval that has ended.
            follower.move_to(positions, earlier_ends)
            self._commit(follower, meter)
        # The meter has counted the dead letters.
        done = written(progress.observedMetrics[self._route.query].asDict(), self._lookups)
        count_unmatched(self._route.query, done.unmatched)
        self._failures.forget()
        running.interval = progress.batchId
        return True

    def _commit(self, follower: Follower, meter: Meter) -> None:
        found = follower.found()
        positions = {partition: each.position for partition, each in found.items()}
        # Of many partitions, one has always just got a record.
        stuck_ones = stuck(positions, self._told, self._due)
        now = time.monotonic()
        self._stuck_since = {partition: self._stuck_since.get(partition, now) for partition in stuck_ones}
        self._positions.commit(found)
        meter.move_to(positions)
        self._failures.move_to(positions, self._due)
        self._count(positions)
        # Of one whose end is not told nobody knows.
        if not stuck_ones and positions.keys() <= meter.source_ends.keys():
            self._lifecycle.progress.hear(self._route.query)
        # An older end still tells that there is something to take.
        self._told, self._due = positions, self._due | meter.source_ends

    def _count(self, positions: Mapping[int, int]) -> None:
        rows = sum(max(position - self._told.get(partition, 0), 0) for partition, position in positions.items())
        self._lifecycle.progress.take_in(self._route.query, rows)

    def _recover(self, failure: str) -> None:
        """Wait until it is worth trying again. Raises QueryFailed when it isn't any more."""
        RESTARTS.labels(self._route.query).inc()
        unknown = unknown_id(failure)
        if unknown is not None:
            with suppress(StopRequested):
                self._schemas.look_up(unknown.schema_id, self._lifecycle.stopping, one_by_one=True)
            return
        reason = _in_a_line(failure)
        pause = self._failures.pause_seconds(reason)
        _log.error("query failed, and is started again", query=self._route.query, reason=reason, pause_seconds=pause)
        self._lifecycle.stopping.wait(pause)


class _Every:
    """Tells once in so many seconds that it is time."""

    def __init__(self, seconds: float, *, at_once: bool = False) -> None:
        self._seconds = seconds
        self._at = time.monotonic() + (0.0 if at_once else seconds)

    def is_due(self) -> bool:
        """Whether it is time; then not again for so long."""
        if time.monotonic() < self._at:
            return False
        self._at = time.monotonic() + self._seconds
        return True


def _in_a_line(reason: str) -> str:
    """The first line of what Spark tells, cut short."""
    return (reason.strip().splitlines() or ["no reason was told"])[0][:_REASON_CHARACTERS]


def _clock() -> float:
    """By how much the clock differs from one that nobody sets, in seconds; a machine that sleeps stops the latter."""
    return time.time() - time.monotonic()

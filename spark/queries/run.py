"""`python -m spark run`: pipelines, side by side in one process."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, suppress

import structlog
from pyspark.sql import SparkSession

from contracts.definitions.catalog import Catalog
from contracts.servers.provision import check_limits
from contracts.servers.registry import Registry
from contracts.servers.s3 import ANSWER_SECONDS, LOOK_SECONDS
from spark.derivation.derivation import is_stateful, route
from spark.pipeline import Pipeline
from spark.queries.live import Live
from spark.queries.real_time.real_time import RealTime
from spark.queries.stateful import Stateful
from spark.runtime.errors import PipelineUnfit, StopRequested
from spark.runtime.internals.java import java_process, serve_callbacks
from spark.runtime.lease import Lease
from spark.runtime.lifecycle import Lifecycle
from spark.runtime.mode import Mode
from spark.runtime.process import process
from spark.runtime.settings import SparkSettings
from spark.runtime.shortcuts import usable
from spark.sinks.kafka.at_least_once import AtLeastOnceSink
from spark.sinks.kafka.exactly_once import ExactlyOnceSink
from spark.sinks.kafka.sink import Sink
from spark.sinks.kafka.succession import Succession

_log = structlog.get_logger(__name__)


def run_pipelines(pipelines: Sequence[Pipeline], settings: SparkSettings, catalog: Catalog) -> None:
    """Run them until asked to stop; one that fails stops all. Raises what ends it: TopicUnfit, TakenOver, QueryFailed, PositionsDisagree,
    PipelineUnfit, SparkMoved and others.
    """
    if settings.live.mode != Mode.EXACTLY_ONCE and (
        unfit := [each.name for each in pipelines if is_stateful(each, catalog)]
    ):
        raise PipelineUnfit(
            f"{', '.join(unfit)} aggregates, joins, or lets each event through once, which is done in exactly-once mode only: leave HEADRACE_LIVE__MODE out"
        )
    lifecycle = Lifecycle()
    runs = [_Run(pipeline, settings, catalog, lifecycle) for pipeline in pipelines]
    written = [
        topic
        for run in runs
        for route in run.routes
        for topic in (*route.targets, route.dead_letters, route.late)
        if topic
    ]
    check_limits(settings.kafka, catalog, written)
    lifecycle.listen()
    with ExitStack() as ending:
        # A last holder that was killed is watched while Spark starts, which takes as long.
        leases = ending.enter_context(ThreadPoolExecutor(len(pipelines), "lease"))
        for run in runs:
            ending.callback(run.lease.release)
        acquired = [leases.submit(run.lease.acquire) for run in runs]
        spark, registry = ending.enter_context(process("live", settings, lifecycle, live=settings.live.mode))
        settings = settings.model_copy(update={"live": usable(spark, settings.live)})
        serve_callbacks(spark.sparkContext)
        with ThreadPoolExecutor(len(pipelines), "pipeline") as pool:
            running = {
                pool.submit(run.run, spark, registry, held, settings): run.pipeline.name
                for run, held in zip(runs, acquired, strict=True)
            }
            _wait(running, lifecycle)


def _wait(running: Mapping[Future[None], str], lifecycle: Lifecycle) -> None:
    """Until all have ended, which the first failure asks of them; that is raised, and those behind it are logged."""
    done, others = wait(running, return_when=FIRST_EXCEPTION)
    lifecycle.stopping.set()
    failures = [(running[each], error) for each in (*done, *others) if (error := each.exception()) is not None]
    for name, error in failures[1:]:
        _log.error("failed, too", query=name, reason=str(error))
    if failures:
        raise failures[0][1]


class _Run:
    """One pipeline in the process that `of_process` is about."""

    def __init__(self, pipeline: Pipeline, settings: SparkSettings, catalog: Catalog, of_process: Lifecycle) -> None:
        self.pipeline, self.routes = pipeline, [route(pipeline, catalog, source) for source in pipeline.sources]
        self.route = self.routes[0]
        # Whoever starts fences the one before: the lease only says which of two may run.
        prefix = f"leases/{pipeline.name}"
        # In real-time mode the loop that looks at the lease looks after the query, too.
        seconds = LOOK_SECONDS if settings.live.mode == Mode.REAL_TIME else ANSWER_SECONDS
        self.lease = Lease(settings.s3, prefix, settings.live.lease_seconds, resumes=True, answer_seconds=seconds)
        self.is_stateful = is_stateful(pipeline, catalog)
        self._catalog = catalog
        self._lifecycle = of_process.holding(self.lease)

    def run(self, spark: SparkSession, registry: Registry, acquired: Future[None], settings: SparkSettings) -> None:
        """Until asked to stop; `acquired` is the lease's."""
        acquired.result()
        mode = settings.live.mode
        with ExitStack() as ending:
            if mode != Mode.EXACTLY_ONCE:
                # Whoever writes exactly once is fenced.
                succession = Succession(settings.kafka, self.route, self.lease)
                ending.enter_context(succession.watched(lambda: _end_at_once(spark)))
            if mode == Mode.REAL_TIME:
                RealTime(spark, self.pipeline, settings, self._catalog, registry, self._lifecycle).run()
                return
            if self.is_stateful:
                with suppress(StopRequested):
                    Stateful(spark, self.pipeline, settings, self._catalog, registry, self._lifecycle).run()
                return
            with suppress(StopRequested):
                sink = self._sink(settings)
                live = Live(spark, self.pipeline, settings, self._catalog, registry, sink, self._lifecycle)
                query = live.start()
                if query is not None:
                    self._lifecycle.run([query], ends=settings.live.ends)

    def _sink(self, settings: SparkSettings) -> Sink:
        kafka, live = settings.kafka, settings.live
        epoch, notice_seconds = self._lifecycle.epoch, self._lifecycle.notice_seconds
        if live.mode == Mode.AT_LEAST_ONCE:
            at_least_once = AtLeastOnceSink(kafka, self.route, live, epoch, notice_seconds, self.pipeline.lookups)
            # One that was frozen while Spark started would fence its successor.
            self._lifecycle.check_lease()
            at_least_once.take_over(self._lifecycle.stopping)
            return at_least_once
        sink = ExactlyOnceSink(kafka, self.route, live, epoch, notice_seconds)
        threading.Thread(target=sink.keep_offsets, args=[self._lifecycle], name="keep-offsets", daemon=True).start()
        return sink


def _end_at_once(spark: SparkSession) -> None:
    """Without an orderly end, in which Spark's producers would still send: what they have left, a successor writes."""
    jvm = java_process(spark.sparkContext)
    if jvm is not None:
        jvm.kill()
    os._exit(1)

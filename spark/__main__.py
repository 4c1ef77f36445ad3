"""`python -m spark live|lake|repair`: Headrace's Spark deployables."""

from __future__ import annotations

import argparse
import logging
import os
import subprocess
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path

import structlog
from pyspark.sql import SparkSession

from contracts.catalog import Catalog, load_catalog
from contracts.command_line import command_line
from contracts.errors import HeadraceError
from contracts.observe import configure_logging, serve_health
from contracts.provision import check_limits
from contracts.registry import Registry
from contracts.settings import read_settings
from spark.pipelines.departures_enriched import departures_enriched
from spark.queries import repair_command
from spark.queries.derivation import route
from spark.queries.lake import lake_tables, lake_topics, run_lake
from spark.queries.live import Live
from spark.queries.real_time import RealTime
from spark.runtime.errors import StopRequested
from spark.runtime.lease import Lease
from spark.runtime.lifecycle import Lifecycle
from spark.runtime.mode import GUARANTEES, Mode
from spark.runtime.session import start_session, stop_session, while_java_lives
from spark.runtime.settings import SparkSettings
from spark.sinks.kafka.at_least_once import AtLeastOnceSink
from spark.sinks.kafka.exactly_once import ExactlyOnceSink
from spark.sinks.kafka.sink import Sink
from spark.sinks.kafka.succession import Succession

_log = structlog.get_logger(__name__)

_REGISTRY_SECONDS = 3.0
"""A registry that hangs holds up a batch for so long, once in a while."""


def main() -> int:
    """Run one deployable until SIGTERM, or a repair until it is done. Status 0: stopped as asked, or all done; 1: failed; 2: wrong
    settings.
    """
    options = _parser().parse_args()
    name: str = options.deployable
    settings = read_settings(SparkSettings)
    if name == "live" and options.mode is not None:
        settings = settings.model_copy(update={"live": settings.live.model_copy(update={"mode": Mode(options.mode)})})
    configure_logging(settings, service=name)
    # It tells of every call, and of every failure again, with its stack; the latter by the root logger itself.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(lambda record: "py4j" not in Path(record.pathname).parts)
    try:
        if name == "repair":
            repair_command.run(departures_enriched, settings, options)
        else:
            run(name, settings, load_catalog())
    except HeadraceError as error:
        _log.error("stopped by a failure", reason=str(error))
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = command_line("spark", __doc__)
    commands = parser.add_subparsers(dest="deployable", required=True)
    live = commands.add_parser("live", help="enrich departed flights as they come (--mode, HEADRACE_LIVE__MODE)")
    guarantees = "; ".join(f"{mode}: {guarantee}" for mode, guarantee in GUARANTEES.items())
    live.add_argument("--mode", choices=[mode.value for mode in Mode], help=guarantees)
    commands.add_parser("lake", help="copy every topic whose contract asks for it into its Delta table, exactly once")
    what = "enrich rows again whose dimension row came late, and send each once as its next revision"
    repair_command.add_options(commands.add_parser("repair", help=what, description=f"{what.capitalize()}."))
    return parser


def run(name: str, settings: SparkSettings, catalog: Catalog) -> None:
    """Run `live` or `lake` until asked to stop. Raises what ends it: TopicUnfit, TakenOver, QueryFailed, PositionsDisagree and others."""
    check_limits(settings.kafka, catalog, _written_by(name, settings, catalog))
    lifecycle = Lifecycle()
    lifecycle.listen()
    with ExitStack() as ending:
        # A last holder that was killed is watched while Spark starts, which takes as long.
        acquired = _acquire(lifecycle, settings, catalog, ending) if name == "live" else None
        mode = settings.live.mode if name == "live" else None
        real_time = mode == Mode.REAL_TIME
        spark = start_session(settings, f"headrace-{name}", live=mode)
        ending.callback(lambda: stop_session(spark, settings, has_worked=lifecycle.progress.has_rows))
        ending.enter_context(while_java_lives(spark))
        lifecycle.listen()

        # In real-time mode Spark tells of its progress at an interval's end.
        limit = settings.stalled_after_seconds + (settings.live.interval_seconds if real_time else 0.0)

        def healthy() -> str | None:
            silent = lifecycle.progress.silent_seconds()
            return f"no progress for {silent:.0f} s" if silent > limit else None

        ending.enter_context(serve_health(settings.http, service=name, healthy=healthy))
        registry = ending.enter_context(
            Registry(settings.registry, retry_seconds=2.0, timeout_seconds=_REGISTRY_SECONDS)
        )
        if acquired is not None:
            acquired.result()
            if mode != Mode.EXACTLY_ONCE:
                # Whoever writes exactly once is fenced.
                ending.enter_context(_succession(settings, catalog, lifecycle).watched(lambda: _end_at_once(spark)))
        if real_time:
            RealTime(spark, departures_enriched, settings, catalog, registry, lifecycle).run()
        elif name == "live":
            with suppress(StopRequested):
                sink = _live_sink(settings, catalog, lifecycle)
                query = Live(spark, departures_enriched, settings, catalog, registry, sink, lifecycle).start()
                lifecycle.run([query] if query is not None else [])
        else:
            run_lake(lake_tables(spark, settings, catalog, registry, lifecycle), lifecycle)


def _written_by(name: str, settings: SparkSettings, catalog: Catalog) -> list[str]:
    """The topics that a deployable writes to."""
    if name == "live":
        way = route(departures_enriched, catalog)
        return [way.target, way.dead_letters]
    return [catalog.topic(topic).dead_letter_topic for topic in lake_topics(settings, catalog)]


def _acquire(lifecycle: Lifecycle, settings: SparkSettings, catalog: Catalog, ending: ExitStack) -> Future[None]:
    """Begin to take the lease of `live`; each table of `lake` has one of its own."""
    target = route(departures_enriched, catalog).target
    # Whoever starts fences the one before: the lease only says which of two may run.
    lease = Lease(settings.s3, f"leases/live/{target}", settings.live.lease_seconds, resumes=True)
    lifecycle.lease = lease
    pool = ending.enter_context(ThreadPoolExecutor(1, "lease"))
    ending.callback(lease.release)
    return pool.submit(lease.acquire)


def _succession(settings: SparkSettings, catalog: Catalog, lifecycle: Lifecycle) -> Succession:
    assert lifecycle.lease is not None
    return Succession(settings.kafka, route(departures_enriched, catalog), lifecycle.lease)


def _end_at_once(spark: SparkSession) -> None:
    """Without an orderly end, in which Spark's producers would still send: what they have left, a successor writes."""
    jvm: subprocess.Popen[bytes] | None = getattr(spark.sparkContext._gateway, "proc", None)
    if jvm is not None:
        jvm.kill()
    os._exit(1)


def _live_sink(settings: SparkSettings, catalog: Catalog, lifecycle: Lifecycle) -> Sink:
    if settings.live.mode == Mode.AT_LEAST_ONCE:
        at_least_once = AtLeastOnceSink(
            settings.kafka,
            route(departures_enriched, catalog),
            settings.live,
            lifecycle.epoch,
            lifecycle.notice_seconds,
            departures_enriched.lookups,
        )
        at_least_once.take_over(lifecycle.stopping)
        return at_least_once
    sink = ExactlyOnceSink(
        settings.kafka, route(departures_enriched, catalog), settings.live, lifecycle.epoch, lifecycle.notice_seconds
    )
    threading.Thread(target=sink.keep_offsets, args=[lifecycle], name="keep-offsets", daemon=True).start()
    return sink


if __name__ == "__main__":
    sys.exit(main())

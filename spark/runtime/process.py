"""What every deployable of Spark's has: a session, its health, and the registry."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from pyspark.sql import SparkSession

from contracts.observe import serve_health
from contracts.servers.registry import Registry
from spark.runtime.lifecycle import Lifecycle
from spark.runtime.mode import Mode
from spark.runtime.session import start_session, stop_session, while_java_lives
from spark.runtime.settings import SparkSettings

_REGISTRY_SECONDS = 3.0
"""A registry that hangs holds up a batch for so long, once in a while."""


def stalled_after(settings: SparkSettings, live: Mode | None) -> float:
    """After how many seconds without progress a process is unhealthy."""
    # Of some pipelines in real-time mode only an interval's end tells that they get on.
    silence = settings.live.interval(one_of_each=False) if live == Mode.REAL_TIME else 0.0
    return settings.stalled_after_seconds + silence


@contextmanager
def process(
    name: str, settings: SparkSettings, lifecycle: Lifecycle, live: Mode | None = None
) -> Iterator[tuple[SparkSession, Registry]]:
    """Spark's session and a client of the registry, and `/health` and `/metrics` as long as they are used. `live` is the pipelines' mode."""
    with ExitStack() as ending:
        spark = start_session(settings, f"headrace-{name}", live=live)
        ending.callback(lambda: stop_session(spark, settings, has_worked=lifecycle.progress.has_rows))
        ending.enter_context(while_java_lives(spark))
        lifecycle.listen()
        limit = stalled_after(settings, live)

        def healthy() -> str | None:
            silent = lifecycle.progress.silent_seconds()
            return f"no progress for {silent:.0f} s" if silent > limit else None

        ending.enter_context(serve_health(settings.http, service=name, healthy=healthy))
        registry = Registry(settings.registry, retry_seconds=2.0, timeout_seconds=_REGISTRY_SECONDS)
        yield spark, ending.enter_context(registry)

"""Queries that run until the process is asked to stop, and then end between two batches."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Sequence

import structlog
from botocore.exceptions import BotoCoreError, ClientError
from pyspark.errors import PythonException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from contracts.command_line import set_on_signals
from spark.runtime.errors import QueryFailed, StopRequested
from spark.runtime.lease import NOTICE_SECONDS, Lease
from spark.runtime.metrics import Progress

_log = structlog.get_logger(__name__)

_LOOK_SECONDS = 0.1
_PROGRESS_SECONDS = 1.0
_LEASE_SECONDS = 2.0
"""How often to ask the object store whether somebody has taken over."""

_GRACE_SECONDS = 60.0
"""How long a batch may take to finish after the request to stop."""

_REASON_CHARACTERS = 500

BatchFunction = Callable[[DataFrame, int], None]


class Lifecycle:
    """`stopping` is set by SIGTERM or SIGINT; everything that waits, waits on it. Queries end when the `lease`, if any, is lost."""

    def __init__(self) -> None:
        self.stopping = threading.Event()
        self.lease: Lease | None = None
        self.progress = Progress()

    def holding(self, lease: Lease) -> Lifecycle:
        """That of the queries that this lease is for, in the same process."""
        found = Lifecycle()
        found.stopping, found.progress, found.lease = self.stopping, self.progress, lease
        return found

    @property
    def epoch(self) -> int:
        """That of the lease; 0 without one."""
        return 0 if self.lease is None else self.lease.epoch

    @property
    def notice_seconds(self) -> float:
        """How long the last holder of the lease may go on before it has found out that there is a successor; 0 if it gave the lease back."""
        return NOTICE_SECONDS if self.lease is not None and self.lease.was_forced else 0.0

    def listen(self) -> None:
        """Take the signals. Call it before Spark starts, and again afterwards: Spark takes SIGINT for itself."""
        set_on_signals(self.stopping)
        # Whoever stops the whole process group means us; the JVM has to finish its batch.
        os.register_at_fork(after_in_child=lambda: signal.signal(signal.SIGTERM, signal.SIG_IGN))

    def until_stopped(self, write: BatchFunction) -> BatchFunction:
        """`write` as a function for foreachBatch that refuses to begin a batch after the request to stop.

        It must raise: returning would commit the batch as done.
        """

        def guarded(batch: DataFrame, batch_id: int) -> None:
            if self.stopping.is_set():
                raise StopRequested("asked to stop")
            try:
                # One that slept finds out before it does anything; asking before each batch would cost it a request.
                if self.lease is not None and self.lease.is_overdue:
                    self.lease.check()
                write(batch, batch_id)
            except StopRequested:
                raise
            except Exception as error:  # noqa: BLE001  whatever it is, it ends the query
                # Spark searches the text that we raise with a regular expression, and overflows the stack of the
                # query's thread on a long one: the query would neither run nor end. So the long text goes to our log.
                _log.error("batch failed", batch_id=batch_id, exc_info=True)
                raise QueryFailed(in_a_line(error)) from None

        return guarded

    def check_lease(self) -> None:
        """Raise TakenOver when the lease is lost. An object store that doesn't answer says nothing of it; then `spark.sinks.kafka.succession` asks the brokers."""
        if self.lease is None:
            return
        try:
            self.lease.check()
        except (BotoCoreError, ClientError) as error:
            _log.warning(
                "object store in trouble: nobody knows whether another process has taken over", error=str(error)
            )

    def run(self, queries: Sequence[StreamingQuery], *, ends: bool = False) -> None:
        """Return when asked to stop and no batch is half done, and, where it `ends`, when each query has taken what was there.

        Raises QueryFailed when a query ends otherwise, TakenOver when the lease is lost.
        """
        _log.info("started", queries=[query.name for query in queries])
        check_at = look_at = time.monotonic()
        while not self.stopping.wait(_LOOK_SECONDS):
            now = time.monotonic()
            if now >= check_at:
                self.check_lease()
                check_at = now + _LEASE_SECONDS
            ended = [query for query in queries if not query.isActive]
            for query in ended:
                # Asked to stop meanwhile, a query ends by what its function raises.
                if not self.stopping.is_set() and (not ends or query.exception() is not None):
                    raise QueryFailed(_cause(query))
            if ends and len(ended) == len(queries):
                break
            if now >= look_at:
                for query in queries:
                    self.progress.look(query)
                look_at = now + _PROGRESS_SECONDS
        was_asked = self.stopping.is_set()
        _log.info("stopping" if was_asked else "all that was there is taken", queries=[query.name for query in queries])
        deadline = time.monotonic() + _GRACE_SECONDS
        for query in queries:
            _stop_between_batches(query, deadline)


def _stop_between_batches(query: StreamingQuery, deadline: float) -> None:
    """`stop()` interrupts what runs, the checkpoint's commit included, so wait until nothing does."""
    while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)
    if query.isActive and query.status["isTriggerActive"]:
        _log.warning("batch interrupted; it runs again after the restart", query=query.name)
    query.stop()


def _cause(query: StreamingQuery) -> str:
    error = query.exception()
    if error is None:
        return f"query {query.name} ended"
    # A failure in our own function arrives as a Python traceback, whose last line names it.
    own = [line for line in str(error).splitlines() if line.startswith("spark.runtime.errors.QueryFailed: ")]
    return f"query {query.name} failed: {own[-1].partition(': ')[2] if own else in_a_line(error)}"


def in_a_line(error: BaseException) -> str:
    """What is wrong, cut short; of a failure in a Python worker what that raised."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    if isinstance(error, PythonException):
        # A worker's traceback, whose last line that is not indented names what it raised.
        return next((line for line in reversed(lines) if ": " in line and not line[0].isspace()), "")[
            :_REASON_CHARACTERS
        ]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:_REASON_CHARACTERS]

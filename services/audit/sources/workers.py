"""`Workers`: the processes that read, and how far they are."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ProcessPoolExecutor, wait
from types import TracebackType
from typing import Any, Self

from services.audit.sources.progress import share

_SAY_SECONDS = 2.0

Job = tuple[Callable[..., Any], tuple[Any, ...]]


class Workers:
    """Runs jobs side by side, one process for each core; few records are read in this process, which needs no start."""

    def __init__(self, say: Callable[[str], None], *, processes: int | None = None) -> None:
        """`say` takes progress. `processes`: 1 is this process alone."""
        self._say = say
        self._processes = processes or os.cpu_count() or 1
        self._context = multiprocessing.get_context("spawn")
        self._counter = self._context.Value("Q", 0)
        self._pool: ProcessPoolExecutor | None = None
        self._total = 0
        share(self._counter)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    @property
    def processes(self) -> int:
        """How many work at once."""
        return self._processes

    def run(self, jobs: Sequence[Job], records: int) -> list[Any]:
        """The results in the jobs' order; `records` is about how many they read. Raises what the first failing job raised."""
        self._total += records
        if self._processes == 1 or (self._pool is None and records < 50_000):
            return [function(*arguments) for function, arguments in jobs]
        if self._pool is None:
            self._pool = ProcessPoolExecutor(
                self._processes, self._context, initializer=share, initargs=(self._counter,)
            )
        futures = [self._pool.submit(function, *arguments) for function, arguments in jobs]
        left = set(futures)
        while left:
            done, left = wait(left, _SAY_SECONDS, FIRST_EXCEPTION)
            for future in done:
                future.result()
            if left:
                self._say(f"read {self._counter.value:,} of about {self._total:,} records")
        return [future.result() for future in futures]

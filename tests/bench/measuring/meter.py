"""CPU seconds and peak resident memory of process trees while a block runs, by the operating system's own accounts."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import psutil

_SAMPLE_SECONDS = 0.2
SELDOM_SECONDS = 5.0
"""For whoever measures latencies in the same process: a look at the trees takes some ms of the interpreter."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What one process tree used: seconds of CPU (user and system), and its largest resident set in MiB."""

    cpu_seconds: float
    peak_rss_mib: float


@dataclass(frozen=True, slots=True)
class Machine:
    """Its processors on average, in cores: what nothing used, and what another machine on the same hardware took (`stolen`)."""

    cores: int
    idle: float
    stolen: float


class Meter:
    """Watches named process trees from `__enter__` to `__exit__`, those that were started; `usage` and `machine` are filled at the end.

    A child that starts and ends between two samples is missed, unless its parent waits for it.
    """

    def __init__(self, pids: Mapping[str, int | None], *, every_seconds: float = _SAMPLE_SECONDS) -> None:
        self._every_seconds = every_seconds
        self._roots = {name: psutil.Process(pid) for name, pid in pids.items() if pid is not None}
        self._before: dict[str, float] = {}
        self._cpu: dict[str, dict[int, float]] = {name: {} for name in self._roots}
        self._peak: dict[str, int] = dict.fromkeys(self._roots, 0)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="meter", daemon=True)
        self.usage: dict[str, Usage] = {}
        self.machine = Machine(os.cpu_count() or 1, 0.0, 0.0)

    def __enter__(self) -> Self:
        self._began_at, self._processors = time.monotonic(), psutil.cpu_times()
        self._sample()
        self._before = {name: sum(cpu.values()) for name, cpu in self._cpu.items()}
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._sample()
        for name in self._roots:
            cpu = sum(self._cpu[name].values()) - self._before[name]
            self.usage[name] = Usage(cpu, self._peak[name] / 2**20)
        seconds = time.monotonic() - self._began_at
        now, before = psutil.cpu_times(), self._processors

        def cores(*kinds: str) -> float:
            # Not every system tells all of them.
            return sum(getattr(now, kind, 0.0) - getattr(before, kind, 0.0) for kind in kinds) / seconds

        self.machine = Machine(self.machine.cores, cores("idle", "iowait"), cores("steal"))

    def cpu_seconds(self) -> float:
        """What all trees together have used since `__enter__`, as of the last sample."""
        now = sum(seconds for cpu in self._cpu.values() for seconds in list(cpu.values()))
        return now - sum(self._before.values())

    def _run(self) -> None:
        while not self._stop.wait(self._every_seconds):
            self._sample()

    def _sample(self) -> None:
        for name, root in self._roots.items():
            rss = 0
            for process in _tree(root):
                try:
                    times = process.cpu_times()
                    self._cpu[name][process.pid] = times.user + times.system
                    rss += process.memory_info().rss
                except psutil.NoSuchProcess:
                    continue
            self._peak[name] = max(self._peak[name], rss)


def proportional_mib(pid: int | None) -> float:
    """The memory of a process tree in MiB; of a page that n processes share, each has one nth (PSS)."""
    found = 0
    for process in _tree(psutil.Process(pid)):
        with suppress(psutil.NoSuchProcess):
            found += process.memory_full_info().pss
    return found / 2**20


def _tree(root: psutil.Process) -> list[psutil.Process]:
    try:
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []

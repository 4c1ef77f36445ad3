"""A process that is frozen for a while."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

from deploy.local.processes.process import Process


@contextmanager
def frozen(process: Process) -> Iterator[None]:
    """SIGSTOP, and SIGCONT at the end: meanwhile its connections are taken, and nothing answers."""
    pid = process.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)

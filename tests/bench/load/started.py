"""`started`: a process beside a measurement, which counts only if the process did what it was to do."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from deploy.errors import ProcessFailed
from deploy.local.processes.deployable import ROOT
from deploy.local.processes.process import describe_exit


@contextmanager
def started(what: str, command: Sequence[str], env: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A process with `env` besides this one's environment. The block's end waits for it; an exception in the block ends it.

    Raises ProcessFailed if it failed.
    """
    process = subprocess.Popen(command, env={**os.environ, **env}, cwd=ROOT)
    try:
        yield process
        if code := process.wait():
            raise ProcessFailed(f"{what} ended with {describe_exit(code)}: the figures don't count")
    finally:
        process.terminate()
        process.wait()

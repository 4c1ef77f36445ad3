"""A measurement ends with the process beside it, however either ends."""

from __future__ import annotations

import os
import signal
import sys

import pytest

from deploy.errors import ProcessFailed
from tests.bench.load.started import started


def _python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_the_end_of_the_block_waits_for_the_process() -> None:
    with started("the load", _python("import time; time.sleep(0.2)"), {}) as process:
        assert process.poll() is None
    assert process.returncode == 0


def test_a_process_that_failed_fails_the_measurement() -> None:
    with (
        pytest.raises(ProcessFailed, match="the load ended with exit code 3: the figures don't count"),
        started("the load", _python("import os, sys; sys.exit(int(os.environ['CODE']))"), {"CODE": "3"}),
    ):
        pass


def test_so_does_one_that_a_signal_ended() -> None:
    with (
        pytest.raises(ProcessFailed, match="the load ended with signal SIGKILL"),
        started("the load", _python("import time; time.sleep(60)"), {}) as process,
    ):
        os.kill(process.pid, signal.SIGKILL)


def test_an_exception_in_the_block_ends_the_process() -> None:
    with pytest.raises(SystemExit), started("the load", _python("import time; time.sleep(60)"), {}) as process:
        sys.exit(143)
    assert process.returncode == -signal.SIGTERM

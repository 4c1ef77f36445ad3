"""What every deployable's command line does with signals."""

from __future__ import annotations

import subprocess
import sys

_ASKED_WHILE_THE_LOCK_IS_HELD = """
import signal
from threading import Event
from contracts.command_line import set_on_signals

stopping = Event()
set_on_signals(stopping)
with stopping._cond:  # as `Event.wait` does, in the moment before it sleeps
    signal.raise_signal(signal.SIGTERM)
assert stopping.wait(10)
"""


def test_a_signal_that_finds_the_main_thread_in_wait_stops_it() -> None:
    subprocess.run([sys.executable, "-c", _ASKED_WHILE_THE_LOCK_IS_HELD], check=True, timeout=30)

"""The command line that every deployable has."""

from __future__ import annotations

import argparse
import signal
from threading import Event, Thread


def command_line(module: str, description: str | None) -> argparse.ArgumentParser:
    """The parser of `python -m MODULE`: parse before anything else, so that `--help` and a wrong option do nothing."""
    return argparse.ArgumentParser(
        prog=f"python -m {module}", description=description, epilog="Settings come from HEADRACE_ variables."
    )


def set_on_signals(stopping: Event) -> None:
    """SIGTERM and SIGINT set `stopping`. For the main thread alone, as Python's `signal.signal` asks."""

    def stop(*_: object) -> None:
        # In another thread: the signal may find this one in `stopping.wait`, with the event's lock in hand.
        Thread(target=stopping.set, name="stop", daemon=True).start()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)

"""How many records all processes of an audit have read so far."""

from __future__ import annotations

from multiprocessing.sharedctypes import Synchronized
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    Counter = Synchronized[int]

_counter: Counter | None = None


def share(counter: Counter) -> None:
    """Count on this counter from now on: the initializer of each process."""
    global _counter
    _counter = counter


def advance(records: int) -> None:
    """So many more are read."""
    if _counter is not None:
        with _counter.get_lock():
            _counter.value += records

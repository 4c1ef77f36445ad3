"""Calls that may not return, and that the process does not wait for: `aside`."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def aside(name: str, work: Callable[[], T]) -> Future[T]:
    """What `work` returns, or raises, once it has, in a thread of this name. Neither Java nor a broker can be told to give a call up."""
    done: Future[T] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:  # noqa: BLE001  for whoever waits
            done.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return done

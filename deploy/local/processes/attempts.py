"""`Attempts`: what a full disk refuses now, and takes later."""

from __future__ import annotations

import time
from collections.abc import Callable

_PAUSE_SECONDS = 30.0


class Attempts:
    """Makes attempts that may fail for the disk's sake; `say` hears of the first failure of each, not of its repeats."""

    def __init__(self, say: Callable[[str], None], *, pause_seconds: float = _PAUSE_SECONDS) -> None:
        self._say = say
        self._pause_seconds = pause_seconds
        self._not_before: dict[str, float] = {}

    def make(self, what: str, do: Callable[[], object]) -> bool:
        """Whether `do` was done: not if it raised OSError now or a short while ago. `what` is the infinitive of it, as a person reads it."""
        if time.monotonic() < self._not_before.get(what, 0.0):
            return False
        try:
            do()
        except OSError as error:
            if what not in self._not_before:
                self._say(f"can't {what}: {error}; make room on the disk, it is tried again")
            self._not_before[what] = time.monotonic() + self._pause_seconds
            return False
        self._not_before.pop(what, None)
        return True

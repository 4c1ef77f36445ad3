"""`Grace`: how long something is asked for again that a registry does not know."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from typing import TypeVar

_T = TypeVar("_T")

_FIRST_PAUSE_SECONDS = 0.05
"""Each further one is twice as long."""
_REST = 10
"""After waiting in vain there is no waiting for so many times as long: garbage takes a tenth of the time at most."""
_REMEMBERED_SECONDS = 60.0
_REMEMBERED_AT_MOST = 1000


class Grace:
    """Waits for what a registry has, but not each of its nodes yet: one that lags behind does not know the newest schemas.

    What isn't there by the end of the grace, `seconds` long, is not waited for again, and asked for once a minute. Safe to share
    between threads: at worst two of them wait for the same.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._rests_until = 0.0
        self._in_vain: dict[Hashable, float] = {}

    def found(
        self, what: Hashable, ask: Callable[[], _T | None], pause: Callable[[float], object] = time.sleep
    ) -> _T | None:
        """What `ask` gives, asked again while that is None and there is grace left; `pause` takes seconds."""
        if time.monotonic() < self._in_vain.get(what, 0.0):
            return None
        answer = ask()
        if answer is None and not self.was_in_vain(what) and not self.rests:
            answer = self._awaited(what, ask, pause)
        if answer is None and self.was_in_vain(what):
            self._in_vain[what] = time.monotonic() + _REMEMBERED_SECONDS
        return answer

    def was_in_vain(self, what: Hashable) -> bool:
        """Whether it has been waited for, and wasn't there."""
        return what in self._in_vain

    @property
    def rests(self) -> bool:
        """Whether nothing is waited for now, because something was waited for in vain."""
        return time.monotonic() < self._rests_until

    def _awaited(self, what: Hashable, ask: Callable[[], _T | None], pause: Callable[[float], object]) -> _T | None:
        until, seconds = time.monotonic() + self._seconds, _FIRST_PAUSE_SECONDS
        while (left := until - time.monotonic()) > 0:
            pause(min(seconds, left))
            seconds *= 2
            answer = ask()
            if answer is not None:
                return answer
        self._rests_until = time.monotonic() + _REST * self._seconds
        if len(self._in_vain) >= _REMEMBERED_AT_MOST:
            self._in_vain.clear()
        self._in_vain[what] = 0.0
        return None

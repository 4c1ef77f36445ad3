"""`Grace`: how long something is asked for again that a registry does not know."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import TypeVar

_T = TypeVar("_T")

_FIRST_PAUSE_SECONDS = 0.05
"""Each further one is twice as long."""
_REST = 10
"""After waiting in vain there is no waiting for so many times as long: garbage takes a tenth of the time at most. Each further time
in vain, with nothing found between, the rest is twice as long."""
_LONGEST_REST_SECONDS = 600.0
_REMEMBERED_SECONDS = 60.0
_REMEMBERED_AT_MOST = 10_000
"""Some 2 MB."""


@dataclass(frozen=True, slots=True)
class _Unknown:
    """What wasn't there: not asked for again before `until`, which was `pause` seconds ahead; `in_vain` if it was waited for."""

    until: float
    pause: float
    in_vain: bool


class Grace:
    """Waits for what a registry has, but not each of its nodes yet: one that lags behind does not know the newest schemas.

    What isn't there by the end of the grace, `seconds` long, is not waited for again, and asked for once a minute. Then nothing is
    waited for during a rest: what isn't there meanwhile is asked for again after `seconds`, then after twice as long each time, up to
    a minute. Safe to share between threads: at worst two of them wait for the same.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._rest = self._first_rest
        self._rests_until = 0.0
        self._unknown: dict[Hashable, _Unknown] = {}

    def found(
        self, what: Hashable, ask: Callable[[], _T | None], pause: Callable[[float], object] = time.sleep
    ) -> _T | None:
        """What `ask` gives, asked again while that is None and there is grace left; `pause` takes seconds."""
        before = self._unknown.get(what)
        if before is not None and self._clock() < before.until and (before.in_vain or self.rests):
            return None
        answer = ask()
        in_vain = before is not None and before.in_vain
        if answer is None and not in_vain and not self.rests:
            answer = self._awaited(ask, pause)
            in_vain = True
        if answer is None:
            self._remember(what, before, in_vain=in_vain)
        else:
            self._unknown.pop(what, None)
            self._rest = self._first_rest
        return answer

    def was_in_vain(self, what: Hashable) -> bool:
        """Whether it has been waited for, and wasn't there."""
        before = self._unknown.get(what)
        return before is not None and before.in_vain

    @property
    def rests(self) -> bool:
        """Whether nothing is waited for now, because something was waited for in vain."""
        return self._clock() < self._rests_until

    @property
    def _first_rest(self) -> float:
        return min(_REST * self._seconds, _LONGEST_REST_SECONDS)

    def _awaited(self, ask: Callable[[], _T | None], pause: Callable[[float], object]) -> _T | None:
        until, seconds = self._clock() + self._seconds, _FIRST_PAUSE_SECONDS
        while (left := until - self._clock()) > 0:
            pause(min(seconds, left))
            seconds *= 2
            answer = ask()
            if answer is not None:
                return answer
        self._rests_until = self._clock() + self._rest
        self._rest = min(2 * self._rest, _LONGEST_REST_SECONDS)
        return None

    def _remember(self, what: Hashable, before: _Unknown | None, *, in_vain: bool) -> None:
        pause = self._seconds if before is None else 2 * before.pause
        if in_vain or pause > _REMEMBERED_SECONDS:
            pause = _REMEMBERED_SECONDS
        if len(self._unknown) >= _REMEMBERED_AT_MOST:
            self._unknown.clear()
        self._unknown[what] = _Unknown(self._clock() + pause, pause, in_vain)

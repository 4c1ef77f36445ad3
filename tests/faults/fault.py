"""What a fault is: a sentence, and a function that makes it happen, heals it, and shows that it acted."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from spark.runtime.mode import Mode
from tests.faults.stage.stage import Stage

MODES = frozenset({Mode.EXACTLY_ONCE, Mode.REAL_TIME})
"""Of `live`; the mode at-least-once keeps no positions that could be compared."""


@dataclass(frozen=True)
class Shown:
    """Proof that a fault acted: something that happened `times`, in words. None at all is a failure of the campaign."""

    times: int
    what: str

    def __str__(self) -> str:
        return f"{self.times} {self.what}"


Act = Callable[[Stage, random.Random], Shown]
"""Acts on the stage while the load goes on, and returns when it is healed. All chance comes from the second argument."""


@dataclass(frozen=True)
class Fault:
    """`sentence` says what happens, `seconds` how long recovery may take, `modes` in which modes of `live` it can happen."""

    name: str
    sentence: str
    act: Act
    seconds: float
    modes: frozenset[Mode] = MODES


def fault(sentence: str, *, seconds: float = 240, only: Mode | None = None) -> Callable[[Act], Fault]:
    """Make a function the fault of its name; `only` in this mode of `live`."""
    return lambda act: Fault(act.__name__, sentence, act, seconds, MODES if only is None else frozenset({only}))

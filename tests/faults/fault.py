"""What a fault is: a sentence, and a function that makes it happen, heals it, and shows that it acted."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from tests.faults.stage import Stage


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
    """`sentence` says what happens, `seconds` how long recovery may take."""

    name: str
    sentence: str
    act: Act
    seconds: float


def fault(sentence: str, *, seconds: float = 240) -> Callable[[Act], Fault]:
    """Make a function the fault of its name."""
    return lambda act: Fault(act.__name__, sentence, act, seconds)

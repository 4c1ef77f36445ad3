"""`Delays`: how long each stamped record took, as whoever polls sees it."""

from __future__ import annotations

import gc
import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from confluent_kafka import Message

from tests.bench.load.pace import read_stamp

WARM_UP_SECONDS = 20.0
"""Left out of every figure."""

COLUMNS = ("number", "sent_at_ns", "delay_ns")
"""Of the samples, in a file."""

_SWITCH_SECONDS = 0.0005
_SHARES = (50.0, 90.0, 99.0, 99.9)


@dataclass(frozen=True, slots=True)
class Delays:
    """`samples` are (number, sent at ns since 1970, delay in ns), in the order in which they came."""

    samples: list[tuple[int, int, int]] = field(default_factory=list)

    def add(self, message: Message, seen_at: int) -> None:
        """Note when (ns since 1970) a record was seen; one without a stamp is of before."""
        if (stamp := stamp_of(message)) is not None:
            sent_at, number = stamp
            self.samples.append((number, sent_at, seen_at - sent_at))

    def since(self, moments: Mapping[int, int]) -> Delays:
        """The same counted from other moments than those of sending, in ns since 1970 by the records' numbers."""
        return Delays(
            [(number, moments[number], sent_at + delay - moments[number]) for number, sent_at, delay in self.samples]
        )

    @property
    def different(self) -> int:
        """How many records came, each counted once."""
        return len({number for number, _, _ in self.samples})

    def after(self, second: float) -> list[tuple[float, float]]:
        """(Second of the load when it was sent, delay in ms) of each that was sent after that second."""
        began = min(sent_at for _, sent_at, _ in self.samples)
        found = (((sent_at - began) / 1e9, delay / 1e6) for _, sent_at, delay in self.samples)
        return [each for each in found if each[0] >= second]

    def worst_ms(self, seconds: float) -> list[float]:
        """The worst delay of each second; 0 where nothing was sent."""
        worst = [0.0] * math.ceil(seconds + 1)
        for second, delay in self.after(0):
            at = min(int(second), len(worst) - 1)
            worst[at] = max(worst[at], delay)
        return worst

    def pauses_ms(self, seconds: float, interval_seconds: float) -> list[float]:
        """The worst delay around each interval's end after the warm-up; the first one is the worst of the first interval."""
        seen = self.after(WARM_UP_SECONDS)
        begun = [each for each in seen if each[0] < WARM_UP_SECONDS + interval_seconds]
        if seconds < WARM_UP_SECONDS + interval_seconds or not begun:
            return []
        first, _ = max(begun, key=lambda each: each[1])
        worst: dict[int, float] = {}
        for second, delay in seen:
            end = round((second - first) / interval_seconds)
            worst[end] = max(worst.get(end, 0.0), delay)
        return [worst[end] for end in range(1 + int((seconds - first) // interval_seconds)) if end in worst]

    def figures(self) -> dict[str, float]:
        """Percentiles after the warm-up, ms."""
        return percentiles(delay for _, delay in self.after(WARM_UP_SECONDS))


@contextmanager
def undisturbed() -> Iterator[None]:
    """Whoever polls in this process waits neither for garbage collections nor, for long, for another thread."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_SECONDS)
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        sys.setswitchinterval(before)


def stamp_of(message: Message) -> tuple[int, int] | None:
    """When (ns since 1970) and as which a record was sent; None for one of before the load."""
    stamp = dict(message.headers() or []).get("traceparent")
    return read_stamp(stamp) if isinstance(stamp, bytes) else None


def percentiles(values: Iterable[float]) -> dict[str, float]:
    """p50, p90, p99, p99.9 and max of some values, of which there must be one."""
    ordered: Sequence[float] = sorted(values)
    found = {f"p{share:g}": ordered[min(len(ordered) - 1, int(len(ordered) * share / 100))] for share in _SHARES}
    return found | {"max": ordered[-1]}


def as_text(figures: dict[str, float]) -> str:
    """Figures as they are printed."""
    return ", ".join(f"{name} {value:.1f}" for name, value in figures.items())

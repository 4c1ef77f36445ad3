"""`Summary`: dead letters counted by topic and reason, and the newest of them."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from contracts.dead_letters.ledger import Ledger
from contracts.dead_letters.letter import DeadLetter

State = Literal["open", "failed again", "redriven", "purged"]


def state_of(letter: DeadLetter, ledger: Ledger) -> State:
    """`failed again`: it is open, and its record had been sent back once already."""
    if ledger.is_purged(letter):
        return "purged"
    if ledger.is_redriven(letter):
        return "redriven"
    return "open" if letter.redriven_from is None else "failed again"


@dataclass(slots=True)
class Count:
    """The letters of one topic and reason: all, and those of each state; times are the records' own."""

    topic: str
    reason: str
    letters: int = 0
    states: dict[State, int] = field(default_factory=dict)
    oldest: datetime | None = None
    newest: datetime | None = None

    def add(self, letter: DeadLetter, state: State) -> None:
        """Count one more."""
        self.letters += 1
        self.states[state] = self.states.get(state, 0) + 1
        at = letter.timestamp
        if at is not None:
            self.oldest = at if self.oldest is None else min(self.oldest, at)
            self.newest = at if self.newest is None else max(self.newest, at)


class Summary:
    """Adds up letters as they are read; holds no more than `limit` of them."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._counts: dict[tuple[str, str], Count] = {}
        self._newest: list[tuple[int, int, DeadLetter, State]] = []
        self._taken = 0

    def add(self, letter: DeadLetter, ledger: Ledger) -> None:
        """Take in one letter; `ledger` is that of its topic."""
        state = state_of(letter, ledger)
        key = (letter.topic, letter.reason)
        self._counts.setdefault(key, Count(*key)).add(letter, state)
        self._taken += 1
        heapq.heappush(self._newest, (letter.timestamp_ms or 0, self._taken, letter, state))
        if len(self._newest) > self._limit:
            heapq.heappop(self._newest)

    def counts(self) -> list[Count]:
        """By topic, the most frequent reason first."""
        return sorted(self._counts.values(), key=lambda count: (count.topic, -count.letters, count.reason))

    def newest(self) -> list[tuple[DeadLetter, State]]:
        """The newest letters by their records' time, newest first."""
        return [
            (letter, state) for _, _, letter, state in sorted(self._newest, key=lambda each: each[:2], reverse=True)
        ]

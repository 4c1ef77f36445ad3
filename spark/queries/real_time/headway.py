"""How far the queries of a pipeline in real-time mode come, which partitions stand still, and how often in a row queries fail: `Headway`."""

from __future__ import annotations

from collections.abc import Mapping

from spark.runtime.errors import QueryFailed

_PAUSES_SECONDS = (0.0, 1.0, 2.0, 5.0, 10.0)
"""Before each restart after a failure; with so many in a row that came no further, the process ends."""


class Headway:
    """Of all queries of one pipeline, one after the other. It asks nobody: positions by source partition, the topic's ends and moments (in seconds) come in."""

    def __init__(self, query: str) -> None:
        self._query = query
        self._failed = 0
        self._started_at: Mapping[int, int] = {}
        # Of the last `move_to`; where that left a partition out, of the one before.
        self._positions: Mapping[int, int] = {}
        # The newest that were told with positions before these. They outlast a query: one that has just started has a partition that is stuck, too.
        self._ends: dict[int, int] = {}
        self._still_since: dict[int, float] = {}
        self._newly_taken = 0

    def start(self, positions: Mapping[int, int]) -> int:
        """A query starts at these positions. Return how many records the one before had taken that `move_to` was not told of."""
        taken = self._taken(positions) if self._positions else 0
        self._started_at = self._positions = positions
        self._newly_taken = 0
        self._still_since = {}
        return taken

    def move_to(self, positions: Mapping[int, int], ends: Mapping[int, int], now: float) -> int:
        """Take in how far the query has come, and the topic's ends, each where it is known now. Return how many records it has taken since the last time.

        It gets on, and what failed before counts no more, if it has come further since it started, and no partition is where it was then though it had records.
        """
        taken = self._newly_taken = self._taken(positions)
        before, self._positions = self._positions, {**self._positions, **positions}
        self._still_since = {p: self._still_since.get(p, now) for p in self._still(before)}
        if self._has_moved() and not self._still(self._started_at):
            self.forget_failures()
        self._ends.update(ends)
        return taken

    def keeps_up(self, records: int) -> bool:
        """Whether the query has taken so many records since it started, and no more are left than it took from one `move_to` to the next."""
        taken = sum(max(at - self._started_at.get(p, 0), 0) for p, at in self._positions.items())
        left = sum(max(end - self._positions.get(p, end), 0) for p, end in self._ends.items())
        return taken >= records and left <= self._newly_taken

    def still_since(self, moment: float) -> dict[int, int]:
        """The partitions that have stood still since then or longer, with their positions: they had something to take, and have not moved. That is seen at the second
        `move_to`, for of many partitions one has always just got a record.
        """
        return {p: self._positions[p] for p, since in self._still_since.items() if since <= moment}

    def forget_failures(self) -> None:
        """Begin to count anew: the query gets on, or an interval has ended."""
        self._failed = 0

    def pause_seconds(self, reason: str) -> float:
        """How long to wait after a failure. Raises QueryFailed when it isn't worth another start."""
        if self._failed == len(_PAUSES_SECONDS):
            raise QueryFailed(
                f"query {self._query} failed {self._failed + 1} times in a row: {reason}. Mend the cause, which the log has told each time, and start it again"
            )
        self._failed += 1
        return _PAUSES_SECONDS[self._failed - 1]

    def _taken(self, positions: Mapping[int, int]) -> int:
        return sum(max(position - self._positions.get(p, 0), 0) for p, position in positions.items())

    def _has_moved(self) -> bool:
        return any(position > self._started_at.get(p, 0) for p, position in self._positions.items())

    def _still(self, since: Mapping[int, int]) -> set[int]:
        """The partitions that had something to take where they were `since`, and have not moved."""
        ends = self._ends
        return {p for p, at in self._positions.items() if at <= since.get(p, 0) and at < ends.get(p, 0)}

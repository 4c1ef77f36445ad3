"""Whether a query in real-time mode gets on: `stuck`; and how often in a row it has failed without coming further: `Failures`."""

from __future__ import annotations

from collections.abc import Mapping

from spark.runtime.errors import QueryFailed

_PAUSES_SECONDS = (0.0, 1.0, 2.0, 5.0, 10.0)
"""Before each restart after a failure; with so many in a row that came no further, the process ends."""


def stuck(positions: Mapping[int, int], since: Mapping[int, int], ends: Mapping[int, int]) -> set[int]:
    """The partitions that had something to take, and have not moved; `since` is where they were, and `ends` are the topic's of then."""
    return {p for p, position in positions.items() if position <= since.get(p, 0) and position < ends.get(p, 0)}


class Failures:
    """Of one query, over its restarts."""

    def __init__(self, query: str) -> None:
        self._query = query
        self._count = 0
        self._started_at: dict[int, int] = {}

    def started(self, positions: Mapping[int, int]) -> None:
        """Note where the query starts, by partition."""
        self._started_at = dict(positions)

    def move_to(self, positions: Mapping[int, int], ends: Mapping[int, int]) -> None:
        """Take in how far the query has come, and the topic's ends of a look before: a partition that is stuck counts, whatever the others do."""
        has_moved = any(position > self._started_at.get(p, 0) for p, position in positions.items())
        if has_moved and not stuck(positions, self._started_at, ends):
            self.forget()

    def forget(self) -> None:
        """Begin to count anew: an interval has ended, or the query has got on."""
        self._count = 0

    def pause_seconds(self, reason: str) -> float:
        """How long to wait before the next start. Raises QueryFailed when it isn't worth another one."""
        if self._count == len(_PAUSES_SECONDS):
            raise QueryFailed(
                f"query {self._query} failed {self._count + 1} times in a row: {reason}. Mend the cause, which the log has told each time, and start it again"
            )
        self._count += 1
        return _PAUSES_SECONDS[self._count - 1]

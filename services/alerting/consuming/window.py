"""`Window`: records that were read and wait for their deliveries, acknowledged in the order they came."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol


class Acknowledged(Protocol):
    """Records that can be acknowledged, such as `Assigned.up_to` gives."""

    def ack(self) -> bool:
        """Say that the record has been handled, so its offset may be committed."""
        ...


class Window:
    """Acknowledges a record when its deliveries, and those of every record before it, have arrived.

    So a backlog doesn't wait for one delivery after another, and no position passes a record that isn't handled. A
    delivery that fails acknowledges nothing from there on. Lives in one event loop.
    """

    def __init__(self, limit: int, fail: Callable[[BaseException], None]) -> None:
        """`limit`: how many records may wait, before `add` waits too. `fail` is told of each record's delivery that fails, at once."""
        self._limit = limit
        self._fail = fail
        self._waiting: deque[tuple[Acknowledged, asyncio.Future[list[Any]]]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def is_full(self) -> bool:
        """Whether `add` waits."""
        return len(self._waiting) > self._limit

    async def add(self, record: Acknowledged, deliveries: Sequence[asyncio.Future[Any]]) -> None:
        """Take a record and the deliveries that it waits for; none means that it has been handled."""
        if not deliveries and not self._waiting:
            record.ack()
            return
        self._waiting.append((record, asyncio.gather(*deliveries)))
        if deliveries:
            self._waiting[-1][1].add_done_callback(self._arrived)
        while self.is_full:
            # Shielded: when the intake is stopped, the delivery goes on.
            await asyncio.shield(self._waiting[0][1])
            self._settle()

    async def settled(self) -> None:
        """Wait until nothing waits. Raises what the first delivery failed with."""
        while self._waiting:
            await asyncio.shield(self._waiting[0][1])
            self._settle()

    def _arrived(self, deliveries: asyncio.Future[list[Any]]) -> None:
        if not deliveries.cancelled() and (error := deliveries.exception()) is not None:
            self._fail(error)
        self._settle()

    def _settle(self) -> None:
        while self._waiting and (first := self._waiting[0][1]).done():
            if first.cancelled() or first.exception() is not None:
                return
            self._waiting.popleft()[0].ack()

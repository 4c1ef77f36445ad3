"""`Membership`: whether the consumer group still counts this worker in."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic

from services.alerting.consuming.assigned import Assigned

_AGAIN_SECONDS = 0.05


class Membership:
    """Asks the group again when its last answer is older than half a session.

    A process that was frozen wakes with records at hand and rules of before, and nothing in it knows yet that others have gone
    on with its partitions. The group takes a commit from a member only, so that is how it is asked.
    """

    def __init__(
        self, session_seconds: float, confirm: Callable[[], Awaitable[bool]], clock: Callable[[], float] = monotonic
    ) -> None:
        """`confirm` commits what has been handled; False if the group refuses."""
        self._half = session_seconds / 2
        self._confirm = confirm
        self._clock = clock
        self._until = clock()

    async def has(self, assigned: Assigned) -> bool:
        """Wait until it is known whether this worker has the partition."""
        while not assigned.revoked and (asked_at := self._clock()) >= self._until:
            if await self._confirm():
                self._until = asked_at + self._half
            else:
                await asyncio.sleep(_AGAIN_SECONDS)
        return not assigned.revoked

"""`Delivered`, and `Delivery`: what becomes of a record that was published, to be awaited."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from contracts.errors import DeliveryError
from contracts.records.coordinates import Coordinate


@dataclass(frozen=True, slots=True)
class Delivered:
    """Where the broker put a record, on every in-sync replica. `offset` is -1 where it did not say, as of a record that it had already."""

    topic: str
    partition: int
    offset: int

    @property
    def coordinate(self) -> str:
        """`topic/partition/offset`."""
        return str(Coordinate(self.topic, self.partition, self.offset))


OnDelivery: TypeAlias = Callable[[Delivered | DeliveryError], None]
"""Called once for each record, from the publisher's own thread or from one that publishes, flushes or closes. It may publish, and not flush or
close; what it raises comes out of the next call of the publisher.
"""


class Delivery(asyncio.Future[Delivered]):
    """An `on_delivery` that can be awaited: it gives Delivered, or raises DeliveryError. Made by `Publisher.delivery`, for one record.

    Cancelled, it waits no longer; the record is on its way all the same. A failure that nobody awaits is logged by asyncio.
    """

    def __init__(self, outcomes: Outcomes) -> None:
        super().__init__(loop=outcomes.loop)
        self._outcomes = outcomes

    def __call__(self, outcome: Delivered | DeliveryError) -> None:
        """Settle it, from any thread."""
        self._outcomes.put(self, outcome)


class Outcomes:
    """The way from the publisher's threads into one event loop.

    The loop is woken once for all that came since it last looked, not once for each: a wake-up is a write to a pipe.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._arrived: deque[tuple[Delivery, Delivered | DeliveryError]] = deque()
        self._woken = False

    def put(self, delivery: Delivery, outcome: Delivered | DeliveryError) -> None:
        """Settle `delivery` in the loop, soon. A loop that has ended waits for nothing."""
        self._arrived.append((delivery, outcome))
        if self._woken:
            return
        self._woken = True
        try:
            self.loop.call_soon_threadsafe(self._settle)
        except RuntimeError:
            if not self.loop.is_closed():
                raise

    def _settle(self) -> None:
        # Before it looks: what comes from here on wakes the loop again.
        self._woken = False
        for _ in range(len(self._arrived)):
            delivery, outcome = self._arrived.popleft()
            if delivery.done():
                continue
            if isinstance(outcome, DeliveryError):
                delivery.set_exception(outcome)
            else:
                delivery.set_result(outcome)

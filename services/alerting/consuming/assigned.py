"""`Assigned`: a partition while this worker has it, and how far it has been handled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from services.alerting.consuming.window import Window
from services.alerting.rules.rules_in_force import RulesInForce


@dataclass(eq=False, slots=True)
class Assigned:
    """One assignment of one partition. The next assignment of the same partition is another object, so what arrives late
    for this one moves nothing.

    `generation` is the consumer group's, which grows with each assignment of partitions to its workers.
    `handled` is the offset after the last record that has been handled, with every record before it; `committed` is what
    of it the group knows; both None until there is something. `beats` grows with all that is done on the partition; `waits` as long as a record
    waits for a reason, and all partitions behind it.
    """

    topic: str
    partition: int
    window: Window
    generation: int
    handled: int | None = None
    committed: int | None = None
    rules: RulesInForce | None = None
    revoked: bool = False
    beats: int = 0
    waits: int = 0

    def up_to(self, next_offset: int) -> UpTo:
        """What the window acknowledges when every record before `next_offset` has been handled."""
        return UpTo(self, next_offset)


@dataclass(frozen=True, slots=True)
class UpTo:
    """The records of an assignment before a position."""

    assigned: Assigned
    next_offset: int

    def ack(self) -> bool:
        """They have been handled. The window says so in their order."""
        self.assigned.handled = self.next_offset
        return True


Records = list[Any]
"""aiokafka's `ConsumerRecord`s of one partition, in order; it carries no types."""

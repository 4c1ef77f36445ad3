"""`RulesTakeover`: from which record of a partition on which rules apply, told on `rules.activated.v1`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from uuid import uuid4

import structlog

from contracts import topics
from contracts.events import RulesActivated
from contracts.publisher import Publisher
from services.alerting.consuming.assigned import Assigned
from services.alerting.rules.rules_in_force import RulesInForce

_log = structlog.get_logger(__name__)

_AGAIN_SECONDS = 0.05


class RulesTakeover:
    """Makes the alerts a pure function of the records and the events on `rules.activated.v1`.

    New rules take over a partition only where every record before has been handled and that is committed, so none of
    them is ever evaluated again, and only when the event which says so is on the broker. A worker that gets a partition
    tells too: it begins at the committed offset, with the rules of its own file. An event that a worker had on its way when it
    lost the partition may land behind its successor's; by the group's generation readers know it for what it is.
    """

    def __init__(self, publisher: Publisher, commit: Callable[[], Awaitable[bool]]) -> None:
        """`commit` commits what has been handled; whether the group took something new."""
        self._publisher = publisher
        self._commit = commit

    async def __call__(self, assigned: Assigned, rules: RulesInForce, offset: int) -> None:
        """Return when the rules may be used from `offset` on, or when the partition has gone elsewhere.

        Raises DeliveryError if the broker doesn't take the event.
        """
        # Before the group is asked: a worker that loses the partition has an earlier time than its successor.
        began = datetime.now(UTC)
        await assigned.window.settled()
        while assigned.handled != assigned.committed and not assigned.revoked:
            if not await self._commit():
                await asyncio.sleep(_AGAIN_SECONDS)
        if assigned.revoked:
            return
        event = RulesActivated(
            topic=assigned.topic,
            partition=assigned.partition,
            from_offset=offset,
            activated_at=began,
            rules_version=rules.version,
            rules={rule.version: rule.rule.model_dump_json() for rule in rules.rules},
            generation=assigned.generation,
        )
        await self._publish(event)
        _log.info(
            "rules take over a partition",
            topic=event.topic,
            partition=event.partition,
            from_offset=offset,
            version=rules.version,
        )

    async def _publish(self, event: RulesActivated) -> None:
        delivery = self._publisher.delivery()
        self._publisher.publish(topics.RULES_ACTIVATED, event, event_id=str(uuid4()), on_delivery=delivery)
        await delivery

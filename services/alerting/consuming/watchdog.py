"""`Watchdog`: notices a consumer that does nothing while records wait."""

from __future__ import annotations

import asyncio
import faulthandler
from collections.abc import Callable, Iterable

import structlog
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition

from contracts.records.coordinates import Coordinate
from services.alerting.consuming.assigned import Assigned
from services.alerting.rules.rulebook import SERVICE
from services.alerting.settings import AlertingSettings

_log = structlog.get_logger(__name__)

_BLOCKED_SECONDS = 120.0
"""A loop that hasn't turned for so long is blocked for good. Beginning anew after a stall may take as long, too."""
_GRACE_SECONDS = 2.0
_READ_SECONDS = 10.0
"""How long a look at the broker may take before it says nothing."""


class Stalled(Exception):
    """The consumer does nothing, and records wait; the text names one."""


class Watchdog:
    """Looks every `stall_seconds` for partitions on which nothing was done since, and by reading them with a client of its
    own whether there is a record to be handled. A transaction's end marker is an offset but no record, so offsets say nothing.

    A program whose loop doesn't turn at all is ended, with the stacks of its threads on stderr and status 1; whoever runs it
    starts it again.
    """

    def __init__(self, settings: AlertingSettings, assigned: Callable[[], Iterable[Assigned]]) -> None:
        """`assigned` gives the partitions that the consumer has now."""
        self._settings = settings
        self._assigned = assigned

    async def watch(self) -> None:
        """Watch until cancelled; raises Stalled. The loop is watched until `rest`."""
        turning = asyncio.ensure_future(self._tell_that_the_loop_turns())
        try:
            while True:
                await self._look()
        finally:
            turning.cancel()

    @staticmethod
    def rest() -> None:
        """Watch the loop no longer."""
        faulthandler.cancel_dump_traceback_later()

    async def _tell_that_the_loop_turns(self) -> None:
        while True:
            faulthandler.dump_traceback_later(_BLOCKED_SECONDS, exit=True)
            await asyncio.sleep(1.0)

    async def _look(self) -> None:
        before = {each: (each.beats, each.revoked) for each in self._assigned()}
        waits = {each: each.waits for each in before}

        def waits_for_a_reason() -> bool:
            """Partitions are taken one after the other: what one waits for, all others do."""
            return any(each.window.is_full or waits.get(each, 0) != each.waits for each in self._assigned())

        await asyncio.sleep(self._settings.stall_seconds)
        # Those of a rebalance that does not end, too.
        still = {
            each for each in self._assigned() if before.get(each) == (each.beats, each.revoked) and not each.window
        }
        if not still or waits_for_a_reason():
            return
        record = await asyncio.to_thread(self.unread, [(each.topic, each.partition, each.handled) for each in still])
        if record is None:
            return
        # It may have come this very moment.
        await asyncio.sleep(_GRACE_SECONDS)
        if waits_for_a_reason():
            return
        for each in still:
            is_of = (each.topic, each.partition) == (record.topic, record.partition)
            if is_of and before[each] == (each.beats, each.revoked):
                raise Stalled(f"nothing was done for {self._settings.stall_seconds} s, and {record} waits")

    def unread(self, places: Iterable[tuple[str, int, int | None]]) -> Coordinate | None:
        """The coordinate of a committed data record at or after one of these (topic, partition, offset), or None if there
        is none or the broker doesn't say. Without an offset the group's own counts, or the partition's beginning.
        """
        consumer = Consumer(
            {
                **self._settings.kafka.client_config(),
                "group.id": SERVICE,
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
            }
        )
        try:
            known = [
                TopicPartition(topic, partition, offset) for topic, partition, offset in places if offset is not None
            ]
            unknown = [TopicPartition(topic, partition) for topic, partition, offset in places if offset is None]
            for place in consumer.committed(unknown, timeout=_READ_SECONDS) if unknown else []:
                known.append(TopicPartition(place.topic, place.partition, max(place.offset, OFFSET_BEGINNING)))
            consumer.assign(known)
            ended = 0
            while ended < len(known):
                message = consumer.poll(_READ_SECONDS)
                if message is None:
                    return None
                if message.error() is None:
                    return Coordinate.of(message)
                ended += 1
            return None
        except KafkaException as error:
            _log.warning("can't see whether records wait", error=str(error.args[0]))
            return None
        finally:
            consumer.close()

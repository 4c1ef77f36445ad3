"""`Intake`: one topic's way from record to acknowledged alerts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from time import time
from typing import Any, TypeAlias

import structlog

from contracts import topics
from contracts.definitions.topic import TopicContract
from contracts.delivery import Delivery
from contracts.errors import DecodeError, EncodeError, RegistryError, RegistryRefused
from contracts.events import AlertRaised
from contracts.publisher import Publisher
from contracts.records.codec import Codec
from contracts.records.coordinates import Coordinate, coordinate_of
from contracts.records.headers import header_of
from contracts.records.limits import PASSED_ON_BYTES, check_size
from services.alerting import metrics
from services.alerting.consuming.assigned import Assigned, Records
from services.alerting.consuming.membership import Membership
from services.alerting.rules.evaluate import FilterFailed, evaluate
from services.alerting.rules.record import Record
from services.alerting.rules.rules_in_force import RulesInForce
from services.alerting.rules.watch import RulesFile

_log = structlog.get_logger(__name__)

_REGISTRY_PAUSE_SECONDS = 1.0
_AT_ONCE = 250
"""Records between two looks at what else there is to do: about a millisecond of work where no rule matches."""

Takeover: TypeAlias = Callable[[Assigned, RulesInForce, int], Awaitable[None]]
"""Makes sure that rules which are new to a partition are known to apply from an offset on."""


class Intake:
    """Screen, decode, evaluate, publish, acknowledge; one record after the other.

    A record that can't be handled becomes a dead letter of the alerting service. What goes wrong with the program, or with
    a delivery, stops the worker, the record unacknowledged: the window tells of the latter.
    """

    def __init__(
        self,
        contract: TopicContract,
        schema: str,
        schema_by_id: Callable[[int], str],
        rules: RulesFile,
        publisher: Publisher,
        takeover: Takeover,
        membership: Membership,
    ) -> None:
        self._topic = contract.name
        self._most_bytes = contract.most_record_bytes
        self._derived_from, self._parts = contract.derived_from, contract.has_parts
        self._occurred_at = contract.occurred_at
        self._codec = Codec(schema_by_id, reader_schema=schema)
        self._schema_by_id = schema_by_id
        self._rules = rules
        self._publisher = publisher
        self._takeover = takeover
        self._membership = membership
        self._known_ids: set[bytes] = set()
        self.refusal: str | None = None
        """What the registry refuses, while a record waits for it."""
        self._records = metrics.RECORDS.labels(self._topic)

    async def take(self, assigned: Assigned, records: Records) -> None:
        """Handle the records; those left when the partition goes elsewhere are its next owner's."""
        if assigned.handled is None:
            # So that the group is asked, which it is by a commit.
            assigned.handled = records[0].offset
        for start in range(0, len(records), _AT_ONCE):
            some = records[start : start + _AT_ONCE]
            if not await self._membership.has(assigned):
                return
            rules = await self._rules_for(assigned, some[0].offset)
            if rules is None:
                return
            if rules.rules:
                lets_through = rules.screen.lets_through
                for record in [each for each in some if lets_through(each.value)]:
                    if deliveries := await self._deliveries(assigned, rules, record):
                        await assigned.window.add(assigned.up_to(record.offset + 1), deliveries)
            await assigned.window.add(assigned.up_to(some[-1].offset + 1), [])
            assigned.beats += 1
            self._records.inc(len(some))
            metrics.DELAY.observe(self._topic, time(), [each.timestamp for each in some])
            await asyncio.sleep(0)

    async def _rules_for(self, assigned: Assigned, offset: int) -> RulesInForce | None:
        """The rules that the record at `offset` is evaluated with; None if the partition isn't ours any more."""
        rulebook = self._rules.rulebook
        if assigned.rules is None or not assigned.rules.is_of(rulebook):
            rules = RulesInForce.of(rulebook, self._topic, self._schema_by_id)
            if assigned.rules is None or not assigned.rules.same_as(rules):
                await self._takeover(assigned, rules, offset)
            assigned.rules = rules
        return None if assigned.revoked else assigned.rules

    async def _deliveries(self, assigned: Assigned, rules: RulesInForce, record: Any) -> list[Delivery]:
        """What is on its way to the broker because of this record."""
        deliveries: list[Delivery] = []
        try:
            for alert in await self._alerts(assigned, rules, record):
                deliveries.append(self._send(partial(self._publish, alert, record)))
        except (DecodeError, EncodeError, FilterFailed) as error:
            deliveries.append(self._send(partial(self._dead_letter, record, error)))
        except Exception as error:  # noqa: BLE001
            # A mistake of ours. The record must not be lost, and the next ones go on.
            _log.exception("a record can't be handled: find out why", coordinate=_place(record))
            deliveries.append(self._send(partial(self._dead_letter, record, error)))
        return deliveries

    async def _alerts(self, assigned: Assigned, rules: RulesInForce, record: Any) -> list[AlertRaised]:
        check_size(record.key, record.value, self._most_bytes)
        values = await self._decode(assigned, record.value or b"")
        rules.screen.learn(record.value[:5])
        event_id = header_of(_headers(record), "ce_id")
        coordinate = coordinate_of(
            self._derived_from, self._topic, record.partition, record.offset, event_id, parts=self._parts
        )
        return evaluate(rules.rules, Record(self._topic, coordinate, values[self._occurred_at], values))

    async def _decode(self, assigned: Assigned, body: bytes) -> dict[str, Any]:
        """The record's fields. Waits as long as the registry can't be asked: an outage is no bad record."""
        if body[:5] in self._known_ids:
            return self._codec.decode(body)
        try:
            while True:
                try:
                    # In a thread: the registry is asked for the schema.
                    values = await asyncio.to_thread(self._codec.decode, body)
                except RegistryError as error:
                    assigned.waits += 1
                    metrics.REGISTRY_WAITS.inc()
                    self.refusal = str(error) if isinstance(error, RegistryRefused) else None
                    _log.warning("waiting for the schema registry", topic=self._topic, error=str(error))
                    await asyncio.sleep(_REGISTRY_PAUSE_SECONDS)
                else:
                    self._known_ids.add(body[:5])
                    return values
        finally:
            self.refusal = None

    def _publish(self, alert: AlertRaised, record: Any, delivery: Delivery) -> None:
        traceparent = header_of(_headers(record), "traceparent")
        self._publisher.publish(
            topics.ALERTS_RAISED,
            alert,
            event_id=str(alert.alert_id),
            headers={} if traceparent is None or len(traceparent) > PASSED_ON_BYTES else {"traceparent": traceparent},
            on_delivery=delivery,
        )
        metrics.ALERTS.labels(alert.rule).inc()

    def _dead_letter(self, record: Any, error: Exception, delivery: Delivery) -> None:
        reason = type(error).__name__
        self._publisher.dead_letter(
            topics.ALERTS_RAISED,
            key=record.key,
            value=record.value,
            headers=_headers(record),
            reason=reason,
            error=str(error),
            coordinate=_place(record),
            timestamp_ms=record.timestamp,
            on_delivery=delivery,
        )
        metrics.DEAD_LETTERS.labels(self._topic, reason).inc()
        _log.warning("dead letter", coordinate=_place(record), reason=reason, error=str(error))

    def _send(self, send: Callable[[Delivery], None]) -> Delivery:
        """What `send` has put on its way."""
        delivery = self._publisher.delivery()
        try:
            send(delivery)
        except (EncodeError, DecodeError):
            raise
        except Exception as error:  # noqa: BLE001
            # As if the broker had refused it.
            delivery.set_exception(error)
        return delivery


def _place(record: Any) -> str:
    return str(Coordinate(record.topic, record.partition, record.offset))


def _headers(record: Any) -> list[tuple[str, str | bytes | None]]:
    """As they came: a name may stand more than once."""
    return list(record.headers)

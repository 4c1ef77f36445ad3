"""`TopicAgent`: one topic's way from record to acknowledged alerts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from time import time
from typing import Any, cast

import faust
import structlog
from faust.types import EventT, Message, StreamT

from contracts import topics
from contracts.codec import Codec
from contracts.errors import DecodeError, DeliveryError, EncodeError, RegistryError
from contracts.events import AlertRaised
from contracts.publisher import Delivered, OnDelivery, Publisher
from contracts.topic import TopicContract
from services.alerting import metrics
from services.alerting.evaluate import FilterFailed, evaluate
from services.alerting.record import Record, coordinate_of
from services.alerting.watch import RulesFile
from services.alerting.window import Window

_log = structlog.get_logger(__name__)

_REGISTRY_PAUSE_SECONDS = 1.0


class TopicAgent:
    """Decode, evaluate, publish, acknowledge; concurrency 1.

    faust acknowledges an event whose agent raised, so nothing is raised here: a record that can't be handled becomes a
    dead letter of the alerting service, and what goes wrong with the program stops the worker, the record unacknowledged.
    """

    def __init__(
        self,
        contract: TopicContract,
        codec: Codec,
        rules: RulesFile,
        publisher: Publisher,
        window: Window,
        fail: Callable[[BaseException], None],
    ) -> None:
        self._topic = contract.name
        self._occurred_at = contract.occurred_at
        self._codec = codec
        self._rules = rules
        self._publisher = publisher
        self._window = window
        self._fail = fail
        self._known_ids: set[bytes] = set()
        self._records = metrics.RECORDS.labels(self._topic)
        self._delay = metrics.DELAY.labels(self._topic)
        metrics.WAITING.labels(self._topic).set_function(lambda: len(window))

    async def run(self, stream: StreamT[bytes]) -> None:
        """The faust agent."""
        async for event in cast(faust.Stream[bytes], stream).noack().events():
            await self._take(event)

    async def _take(self, event: EventT[bytes]) -> None:
        message = event.message
        deliveries = await self._deliveries(message)
        await self._window.add(event, deliveries)
        self._records.inc()
        self._delay.observe(max(0.0, time() - message.timestamp))

    async def _deliveries(self, message: Message) -> list[asyncio.Future[None]]:
        """What is on its way to the broker because of this record."""
        deliveries: list[asyncio.Future[None]] = []
        try:
            for alert in await self._alerts(message):
                deliveries.append(self._send(partial(self._publish, alert, message)))
        except (DecodeError, EncodeError, FilterFailed) as error:
            deliveries.append(self._send(partial(self._dead_letter, message, error)))
        except Exception as error:  # noqa: BLE001
            # A mistake of ours. The record must not be lost, and the next ones go on.
            _log.exception("a record can't be handled: find out why", coordinate=_place(message))
            deliveries.append(self._send(partial(self._dead_letter, message, error)))
        return deliveries

    async def _alerts(self, message: Message) -> list[AlertRaised]:
        rules = self._rules.rulebook.by_topic.get(self._topic)
        if not rules:
            return []
        values = await self._decode(message.value or b"")
        coordinate = coordinate_of(self._topic, message.partition, message.offset, _header(message, "ce_id"))
        return evaluate(rules, Record(self._topic, coordinate, values[self._occurred_at], values))

    async def _decode(self, body: bytes) -> dict[str, Any]:
        """The record's fields. Waits as long as the registry can't be asked: an outage is no bad record."""
        if body[:5] in self._known_ids:
            return self._codec.decode(body)
        while True:
            try:
                # In a thread: the registry is asked for the schema.
                values = await asyncio.to_thread(self._codec.decode, body)
            except RegistryError as error:
                metrics.REGISTRY_WAITS.inc()
                _log.warning("waiting for the schema registry", topic=self._topic, error=str(error))
                await asyncio.sleep(_REGISTRY_PAUSE_SECONDS)
            else:
                self._known_ids.add(body[:5])
                return values

    def _publish(self, alert: AlertRaised, message: Message, on_delivery: OnDelivery) -> None:
        traceparent = _header(message, "traceparent")
        self._publisher.publish(
            topics.ALERTS_RAISED,
            alert,
            event_id=str(alert.alert_id),
            headers={} if traceparent is None else {"traceparent": traceparent},
            on_delivery=on_delivery,
        )
        metrics.ALERTS.labels(alert.rule).inc()

    def _dead_letter(self, message: Message, error: Exception, on_delivery: OnDelivery) -> None:
        reason = type(error).__name__
        self._publisher.dead_letter(
            topics.ALERTS_RAISED,
            key=message.key,
            value=message.value,
            headers=_headers(message),
            reason=reason,
            error=str(error),
            coordinate=_place(message),
            timestamp_ms=round(message.timestamp * 1000),
            on_delivery=on_delivery,
        )
        metrics.DEAD_LETTERS.labels(self._topic, reason).inc()
        _log.warning("dead letter", coordinate=_place(message), reason=reason, error=str(error))

    def _send(self, hand_over: Callable[[OnDelivery], None]) -> asyncio.Future[None]:
        """A future that the delivery settles. A delivery that fails stops the worker, too."""
        loop = asyncio.get_running_loop()
        arrived: asyncio.Future[None] = loop.create_future()

        def settle(error: BaseException | None) -> None:
            if arrived.done():
                return
            if error is None:
                arrived.set_result(None)
            else:
                arrived.set_exception(error)
                self._fail(error)

        def on_delivery(outcome: Delivered | DeliveryError) -> None:  # in the publisher's thread
            loop.call_soon_threadsafe(settle, outcome if isinstance(outcome, DeliveryError) else None)

        try:
            hand_over(on_delivery)
        except (EncodeError, DecodeError):
            raise
        except Exception as error:  # noqa: BLE001
            # Raised in the loop it would be acknowledged.
            settle(error)
        return arrived


def _place(message: Message) -> str:
    return f"{message.topic}/{message.partition}/{message.offset}"


def _header(message: Message, name: str) -> bytes | None:
    return next((value for key, value in _headers(message) if key == name), None)


def _headers(message: Message) -> list[tuple[str, bytes]]:
    """As they came: a name may stand more than once."""
    return list(cast("Iterable[tuple[str, bytes]]", message.headers or []))

"""`Notifier`: one receiver's own way from the topic of alerts to its webhook."""

from __future__ import annotations

from concurrent.futures import Future
from threading import Event, Thread

import structlog

from contracts import topics
from contracts.definitions.catalog import Catalog
from contracts.delivery import Delivered
from contracts.errors import DeliveryError
from contracts.events import AlertRaised
from contracts.publisher import Publisher
from contracts.records.dead_letter_headers import REDRIVEN_FROM
from contracts.records.headers import header_of
from contracts.servers.registry import Registry
from contracts.subscriber import Record, Subscriber, Undecodable
from services.alerting import metrics
from services.alerting.notifying.notify import Cooldown, Notification, webhook_body
from services.alerting.notifying.receiver import Receiver
from services.alerting.notifying.webhook import Outcome, Webhook
from services.alerting.settings import AlertingSettings

_log = structlog.get_logger(__name__)

_RESTART_SECONDS = 5.0
_REPEATS_WINDOW = 10_000
_DELIVERY_SECONDS = 130.0

# A receiver may be down for a day (librdkafka's most) before the group gives the partition to another worker, which would
# only find it down too. A worker that is gone is noticed by its heartbeats.
_LONGEST_OUTAGE_MS = 86_400_000


class Notifier(Thread):
    """Reads the alerts as the consumer group `alerting-notify-<receiver>` and posts what its cooldown lets through.

    A thread and a group of its own, so a receiver that is down holds up nobody else. At-least-once: an alert counts as
    handled when the receiver took it, when a cooldown holds it back, or when it became a dead letter because the
    receiver calls it unacceptable. The receiver can tell repeats by the header `Idempotency-Key`.
    """

    def __init__(
        self,
        receiver: Receiver,
        settings: AlertingSettings,
        catalog: Catalog,
        registry: Registry,
        publisher: Publisher,
        *,
        receivers: int = 1,
    ) -> None:
        """One of so many `receivers`, whose cooldowns share what memory they may take."""
        super().__init__(name=f"notify-{receiver.name}", daemon=True)
        self._receiver = receiver
        self._settings = settings
        self._catalog = catalog
        self._registry = registry
        self._publisher = publisher
        self._receivers = receivers
        self._stopping = Event()
        self._subscriber: Subscriber[AlertRaised] | None = None

    def stop(self) -> None:
        """End after the attempt at hand; an alert not yet told comes again."""
        self._stopping.set()
        if self._subscriber is not None:
            self._subscriber.stop()

    def run(self) -> None:
        """The thread; begins anew, after a pause, whatever goes wrong."""
        while not self._stopping.is_set():
            try:
                self._notify()
            except Exception:  # noqa: BLE001
                # Whatever it is, the other receivers and the alerts themselves go on.
                _log.exception("notifier failed and begins anew: find out why", receiver=self._receiver.name)
                self._stopping.wait(_RESTART_SECONDS)

    def _notify(self) -> None:
        webhook, cooldown = Webhook(self._receiver, self._stopping), Cooldown(receivers=self._receivers)
        try:
            with Subscriber(
                topics.ALERTS_RAISED,
                f"alerting-notify-{self._receiver.name}",
                self._settings,
                registry=self._registry,
                catalog=self._catalog,
                on_data_loss="continue",
                repeats_window=_REPEATS_WINDOW,
                consumer_config={
                    "max.poll.interval.ms": _LONGEST_OUTAGE_MS,
                    "session.timeout.ms": round(self._settings.session_timeout_seconds * 1000),
                },
            ) as alerts:
                self._subscriber = alerts
                if self._stopping.is_set():
                    return
                lost = 0
                for record in alerts:
                    metrics.LOST.labels(record.topic).inc(alerts.lost - lost)
                    lost = alerts.lost
                    if isinstance(record, Undecodable):
                        self._dead_letter(record, type(record.error).__name__, str(record.error))
                    elif not self._tell(record, cooldown, webhook):
                        return
        finally:
            webhook.close()

    def _tell(self, record: Record[AlertRaised], cooldown: Cooldown, webhook: Webhook) -> bool:
        """Whether the alert has been handled; not when the service is stopping."""
        cut = cooldown.cut
        # What was redriven somebody has asked for.
        is_redriven = header_of(record.headers, REDRIVEN_FROM) is not None
        told = [Notification(record, more=0)] if is_redriven else cooldown.take(record)
        metrics.COOLDOWNS_CUT.labels(self._receiver.name).inc(cooldown.cut - cut)
        if all(notification.record is not record for notification in told):
            metrics.HELD_BACK.labels(self._receiver.name).inc()
        for notification in told:
            outcome = webhook.post(webhook_body(notification), idempotency_key=str(notification.alert.alert_id))
            if outcome is Outcome.STOPPED:
                return False
            if outcome is Outcome.REFUSED:
                error = f"receiver {self._receiver.name} calls it unacceptable"
                self._dead_letter(notification.record, "NotificationRefused", error)
                if self._subscriber is not None:
                    # Or its copy would be a repeat, if it is redriven once the receiver takes it.
                    self._subscriber.forget(notification.record)
        return True

    def _dead_letter(self, record: Record[AlertRaised] | Undecodable, reason: str, error: str) -> None:
        """Raises DeliveryError if the broker does not take it, TimeoutError if it doesn't answer: then the alert isn't handled."""
        arrived: Future[Delivered | DeliveryError] = Future()
        self._publisher.dead_letter(
            topics.ALERTS_RAISED,
            key=record.key,
            value=record.value,
            headers=record.headers,
            reason=reason,
            error=error,
            coordinate=record.coordinate,
            timestamp_ms=record.timestamp_ms,
            on_delivery=arrived.set_result,
        )
        outcome = arrived.result(_DELIVERY_SECONDS)
        if isinstance(outcome, DeliveryError):
            raise outcome
        metrics.DEAD_LETTERS.labels(record.topic, reason).inc()
        _log.warning("dead letter", coordinate=record.coordinate, reason=reason, receiver=self._receiver.name)

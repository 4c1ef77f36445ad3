"""`Notifier`: what becomes of a notification that its receiver calls unacceptable."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from threading import Event
from typing import Any, cast
from uuid import UUID

import pytest
from pydantic import SecretStr

from contracts import topics
from contracts.catalog import load_catalog
from contracts.errors import DeliveryError
from contracts.events import AlertRaised
from contracts.publisher import Delivered, OnDelivery, Publisher
from contracts.registry import Registry
from contracts.subscriber import Record
from services.alerting.notifier import Notifier
from services.alerting.notify import Cooldown
from services.alerting.receiver import Receiver
from services.alerting.settings import AlertingSettings
from services.alerting.webhook import Webhook
from tests.alerting.endpoint import Endpoint
from tests.alerting.examples import AT, a_raised, an_alert

DEAD_LETTERS = f"{topics.ALERTS_RAISED.name}.dlq"


class Letters:
    """In a publisher's place: keeps the coordinates of dead letters and reports the same outcome of each."""

    def __init__(self, outcome: Delivered | DeliveryError) -> None:
        self.coordinates: list[str] = []
        self._outcome = outcome

    def dead_letter(self, topic: object, *, coordinate: str, on_delivery: OnDelivery, **_: Any) -> None:
        self.coordinates.append(coordinate)
        on_delivery(self._outcome)


@pytest.fixture
def refusing() -> Iterator[Webhook]:
    """Takes the first notification, and no other."""
    with Endpoint(200, 422) as endpoint:
        hook = Webhook(Receiver(name="ops", url=SecretStr(endpoint.url)), Event())
        yield hook
        hook.close()


def raised(minutes: int, group: str) -> Record[AlertRaised]:
    alert = an_alert(alert_id=UUID(int=minutes), occurred_at=AT + timedelta(minutes=minutes), group_key=group)
    return a_raised(alert, offset=minutes)


def notifier(letters: Letters) -> Notifier:
    receiver = Receiver(name="ops", url=SecretStr("http://localhost"))
    publisher, registry = cast(Publisher, letters), cast(Registry, None)
    return Notifier(receiver, AlertingSettings(), load_catalog(), registry, publisher)


def test_the_alert_that_was_refused_becomes_the_dead_letter(refusing: Webhook) -> None:
    letters, cooldown = Letters(Delivered(DEAD_LETTERS, 0, 0)), Cooldown()
    ops = notifier(letters)
    assert [ops._tell(raised(minutes, "JFK"), cooldown, refusing) for minutes in (0, 3)] == [True, True]
    assert letters.coordinates == []
    assert ops._tell(raised(11, "EWR"), cooldown, refusing)
    assert letters.coordinates == ["alerts.raised.v1/0/3", "alerts.raised.v1/0/11"]


def test_a_dead_letter_that_the_broker_does_not_take_is_the_notifiers_own_failure(refusing: Webhook) -> None:
    ops, cooldown = notifier(Letters(DeliveryError(DEAD_LETTERS, "id", "MSG_SIZE_TOO_LARGE", "too large"))), Cooldown()
    assert ops._tell(raised(0, "JFK"), cooldown, refusing)
    with pytest.raises(DeliveryError):
        ops._tell(raised(11, "JFK"), cooldown, refusing)

"""`Notifier` on the real stack: what becomes of a notification that its receiver calls unacceptable."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from threading import Event
from uuid import UUID, uuid4

import pytest
from pydantic import SecretStr

from contracts.errors import DeliveryError
from contracts.events import AlertRaised
from contracts.publisher import Publisher
from contracts.servers.registry import Registry
from contracts.subscriber import Record
from deploy.local.servers.stack import LocalStack
from services.alerting.notifying.notifier import Notifier
from services.alerting.notifying.notify import Cooldown
from services.alerting.notifying.receiver import Receiver
from services.alerting.notifying.webhook import Webhook
from services.alerting.settings import AlertingSettings
from tests import sample
from tests.alerting.endpoint import Endpoint
from tests.alerting.examples import AT, a_raised, an_alert
from tests.alerting.worker import read_all, settings_of, tiny
from tests.sample import topics

pytestmark = pytest.mark.system

DEAD_LETTERS = f"{topics.ALERTS_RAISED.name}.dlq"


@pytest.fixture
def refusing() -> Iterator[Webhook]:
    """Takes the first notification, and no other."""
    with Endpoint(200, 422) as endpoint:
        hook = Webhook(Receiver(name="ops", url=SecretStr(endpoint.url)), Event())
        yield hook
        hook.close()


@pytest.fixture
def notifier(stack: LocalStack) -> Iterator[Notifier]:
    """Of that receiver; not running, so that a test hands it the alerts."""
    settings, catalog = settings_of(stack), sample.catalog()
    with (
        Registry(settings.registry) as registry,
        Publisher(
            settings, catalog=catalog, registry=registry, service="alerting", topics=[topics.ALERTS_RAISED]
        ) as publisher,
    ):
        receiver = Receiver(name="ops", url=SecretStr("http://localhost"))
        yield Notifier(receiver, AlertingSettings(), catalog, registry, publisher)


def raised(minutes: int, group: str, value: bytes) -> Record[AlertRaised]:
    alert = an_alert(alert_id=UUID(int=minutes), occurred_at=AT + timedelta(minutes=minutes), group_key=group)
    return replace(a_raised(alert, offset=minutes), value=value)


def letters(stack: LocalStack, mark: bytes) -> list[tuple[bytes, bytes]]:
    """Value and offset of the refused alerts whose value begins with `mark`."""
    found = [(message.value(), dict(message.headers() or [])) for message in read_all(stack, DEAD_LETTERS)]
    return [
        (value, headers["__connect.errors.offset"])  # type: ignore[misc]
        for value, headers in found
        if isinstance(value, bytes) and value.startswith(mark)
    ]


def test_the_alert_that_was_refused_becomes_the_dead_letter(
    stack: LocalStack, notifier: Notifier, refusing: Webhook
) -> None:
    mark, cooldown = uuid4().bytes, Cooldown()
    assert notifier._tell(raised(0, "NTH", mark + b"told"), cooldown, refusing)
    assert notifier._tell(raised(3, "NTH", mark + b"counted"), cooldown, refusing)
    assert letters(stack, mark) == []
    # It ends the cooldown: the alert at 3 is told as a number, and refused, before this one is.
    assert notifier._tell(raised(11, "EST", mark + b"next"), cooldown, refusing)
    assert letters(stack, mark) == [(mark + b"counted", b"3"), (mark + b"next", b"11")]


def test_a_dead_letter_that_the_broker_does_not_take_is_the_notifiers_own_failure(
    stack: LocalStack, notifier: Notifier, refusing: Webhook
) -> None:
    cooldown = Cooldown()
    assert notifier._tell(raised(0, "NTH", b"told"), cooldown, refusing)
    with tiny(stack, DEAD_LETTERS), pytest.raises(DeliveryError, match="MSG_SIZE_TOO_LARGE"):
        notifier._tell(raised(11, "NTH", os.urandom(2_000)), cooldown, refusing)

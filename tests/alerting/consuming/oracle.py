"""The alerts that must be on their topic: a pure function of the records and of `rules.activated.v1`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from uuid import UUID, uuid4

from contracts.subscriber import Record as Received
from contracts.subscriber import Subscriber
from deploy.local.servers.stack import LocalStack
from services.alerting.rules.evaluate import compile_rule, evaluate
from services.alerting.rules.record import Record
from services.alerting.rules.rule import Rule
from tests.alerting.worker import settings_of
from tests.sample import topics
from tests.sample.events import AlertRaised, DepotObserved, RulesActivated


def activations(stack: LocalStack) -> list[RulesActivated]:
    """Every event on the topic, in its order."""
    with Subscriber(topics.RULES_ACTIVATED, f"test-{uuid4()}", settings_of(stack), idle_seconds=5) as events:
        return [record.event for record in events if isinstance(record, Received)]


def alerts_by_activations(events: list[RulesActivated], placed: Mapping[str, DepotObserved]) -> dict[UUID, AlertRaised]:
    """The alerts of readings by coordinate, with the rules that were in force for each; by id."""
    expected: dict[UUID, AlertRaised] = {}
    for coordinate, reading in placed.items():
        topic, partition, offset = coordinate.rsplit("/", 2)
        rules = rules_at(events, topic, int(partition), int(offset))
        compiled = [compile_rule(Rule.model_validate_json(text)) for text in rules.values()]
        record = Record(topic, coordinate, reading.observed_at, vars(reading))
        expected |= {alert.alert_id: alert for alert in evaluate(compiled, record)}
    return expected


def rules_at(events: Iterable[RulesActivated], topic: str, partition: int, offset: int) -> dict[str, str]:
    """The rules that a record is evaluated with: JSON by rule version. `events` are all of them, in the topic's order.

    The last event that begins at the record or before it counts: a worker that was killed may have told of rules for
    offsets that it never came to, and the next one began at an earlier offset.
    """
    rules: dict[str, str] = {}
    for event in events:
        if (event.topic, event.partition) == (topic, partition) and event.from_offset <= offset:
            rules = event.rules
    return rules

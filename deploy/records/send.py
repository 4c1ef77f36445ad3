"""`headrace send`: events from JSON lines, checked against their contract and published."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from pydantic import BaseModel, ValidationError

from contracts import topics
from contracts.definitions.catalog import Catalog
from contracts.definitions.contract_file import wrong_parts
from contracts.delivery import Delivered
from contracts.errors import DeliveryError, EncodeError, HeadraceError, TooLong
from contracts.handle import Topic
from contracts.publisher import Publisher
from contracts.servers.registry import Registry
from contracts.settings import Settings
from deploy.errors import DeployError

_FLUSH_SECONDS = 60.0
_TOLD = 20
"""Of so many events that are not published the numbers are told."""


def handle_of(catalog: Catalog, name: str) -> Topic[Any]:
    """The topic's handle. Raises DeployError if there is none, or pipelines alone may write to it."""
    found = {each.name: each for each in vars(topics).values() if isinstance(each, Topic)}
    if name not in found:
        raise DeployError(f"There is no contract of a topic {name}; there are {', '.join(sorted(found))}.")
    raw = catalog.topic(name).made_of
    if raw is not None:
        raise DeployError(f"{name} is derived from {raw}: send events to that one, and a pipeline makes these of them.")
    return found[name]


def read_events(topic: Topic[Any], lines: Iterable[str]) -> Iterator[tuple[str, BaseModel]]:
    """Each line's event with its id, which is the same for the same line. Empty lines are passed over.

    Raises DeployError with the line's number if one is no event of the topic.
    """
    number = 0
    try:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                event = topic.model.model_validate_json(line)
            except ValidationError as error:
                problems = "; ".join(wrong_parts(error, "line"))
                raise DeployError(f"line {number} is no event of {topic.name}: {problems}") from None
            yield hashlib.sha256(line.strip().encode()).hexdigest()[:32], event
    except UnicodeError as error:
        raise DeployError(f"at line {number} or soon after it is text that is not UTF-8: {error}") from None


def send(
    settings: Settings, catalog: Catalog, topic: Topic[Any], service: str, events: Iterable[tuple[str, BaseModel]]
) -> int:
    """Publish the events as this producer of the topic; how many, all acknowledged. Of a sequence nothing is sent unless all of them fit schema and
    topic; other events are sent as they come. Raises DeployError, NotAProducer, DeliveryError and others.
    """
    sent = _Sent()
    is_file = isinstance(events, Sequence)
    with (
        Registry(settings.registry) as registry,
        Publisher(settings, catalog=catalog, registry=registry, service=service, topics=[topic]) as publisher,
    ):
        for number, (event_id, event) in enumerate(events if is_file else (), 1):
            try:
                publisher.check(topic, event, event_id=event_id)
            except (EncodeError, TooLong) as error:
                raise DeployError(f"event {number}: {error} (nothing is published)") from error
        try:
            for number, (event_id, event) in enumerate(events, 1):
                if sent.refused and not is_file:  # there may be no end
                    break
                publisher.publish(topic, event, event_id=event_id, on_delivery=partial(sent.report, number))
            publisher.flush(_FLUSH_SECONDS)
        except (HeadraceError, DeployError, KeyboardInterrupt) as error:
            with suppress(DeliveryError):
                publisher.close()
            raise DeployError(f"{str(error) or 'interrupted'} ({sent})") from error
    if sent.refused:
        raise DeployError(str(sent))
    return sent.published


class _Sent:
    """What brokers have said of the events, by their number."""

    def __init__(self) -> None:
        self.published = 0
        self.refused: dict[int, DeliveryError] = {}

    def report(self, number: int, outcome: Delivered | DeliveryError) -> None:
        """Of one event."""
        if isinstance(outcome, DeliveryError):
            self.refused[number] = outcome
        else:
            self.published += 1

    def __str__(self) -> str:
        told = f"{self.published} events are published"
        if not self.refused:
            return told
        numbers = sorted(self.refused)
        listed = ", ".join(map(str, numbers[:_TOLD])) + (", …" if len(numbers) > _TOLD else "")
        return f"{told}, and {len(numbers)} are not, by their number {listed}: {self.refused[numbers[0]]}"

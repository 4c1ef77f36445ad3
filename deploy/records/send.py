"""`headrace send`: events from JSON lines, checked against their contract and published."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any

from pydantic import BaseModel, ValidationError

from contracts import topics
from contracts.definitions.catalog import Catalog
from contracts.definitions.contract_file import wrong_parts
from contracts.errors import HeadraceError
from contracts.handle import Topic
from contracts.publisher import Publisher
from contracts.servers.registry import Registry
from contracts.settings import Settings
from deploy.errors import DeployError

_FLUSH_SECONDS = 60.0


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
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            event = topic.model.model_validate_json(line)
        except ValidationError as error:
            problems = "; ".join(wrong_parts(error, "line"))
            raise DeployError(f"line {number} is no event of {topic.name}: {problems}") from None
        yield hashlib.sha256(line.strip().encode()).hexdigest()[:32], event


def send(
    settings: Settings, catalog: Catalog, topic: Topic[Any], service: str, events: Iterable[tuple[str, BaseModel]]
) -> int:
    """Publish the events as this producer of the topic; how many, all acknowledged. Raises NotAProducer, DeliveryError and others."""
    count = 0
    with (
        Registry(settings.registry) as registry,
        Publisher(settings, catalog=catalog, registry=registry, service=service, topics=[topic]) as publisher,
    ):
        try:
            for event_id, event in events:
                publisher.publish(topic, event, event_id=event_id)
                count += 1
        except (HeadraceError, DeployError) as error:
            publisher.flush(_FLUSH_SECONDS)
            raise DeployError(f"{error} ({count} events before it are published)") from error
        publisher.flush(_FLUSH_SECONDS)
    return count

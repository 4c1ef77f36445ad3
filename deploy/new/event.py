"""`new_event`: a topic with its schema and an example."""

from __future__ import annotations

from contracts.definitions.topic import constant_of
from deploy.new.files import NewFiles, rendered


def new_event(topic: str, owner: str, producer: str) -> NewFiles:
    """The contract of events that have ids of their own."""
    names = {
        "topic": topic,
        "owner": owner,
        "producer": producer,
        "domain": topic.partition(".")[0],
        "record": record_name(topic),
    }
    return NewFiles(
        {
            f"contracts/schemas/{topic}/1.avsc": rendered("event.avsc", **names),
            f"contracts/topics/{topic}.yaml": rendered("event.yaml", **names),
            f"contracts/examples/{topic}/first.json": rendered("event.json"),
        }
    )


def record_name(topic: str) -> str:
    """Of `gates.assigned.v1` GatesAssigned, of a later major GatesAssignedV2."""
    return "".join(word.capitalize() for word in constant_of(topic).split("_"))

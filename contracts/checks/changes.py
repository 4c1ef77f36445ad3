"""`changes`: what differs between two states of the contracts, and for whom it breaks."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from contracts.checks.compatibility import incompatibilities
from contracts.checks.schema_rules import kind, non_null
from contracts.definitions.catalog import Catalog
from contracts.definitions.dimension import DimensionContract
from contracts.definitions.topic import LAKE, TopicContract

Weight: TypeAlias = Literal["breaking", "changed", "new"]
WEIGHTS: tuple[Weight, ...] = ("breaking", "changed", "new")
"""The heaviest first."""

_MEANINGS = {
    "key": "records of one key may come to another partition, and out of order",
    "occurred_at": "the event time is another one",
    "lake": "the table that is there does not fit",
    "compacted": "of each key brokers may remove all records but the newest",
    "location": "the versions that are there are not found",
    "type": "pipelines that run keep the version that they have until they are started with this contract",
}
"""Keys whose change breaks something, and what."""


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that differs. `contract` is a topic or a dimension, `concerned` services, pipelines and commands."""

    weight: Weight
    contract: str
    owner: str
    what: str
    concerned: tuple[str, ...] = ()


def changes(before: Catalog, after: Catalog) -> list[Change]:
    """By contract, the heaviest first."""
    found: list[Change] = []
    for name in sorted(before.topics.keys() | after.topics.keys()):
        found += _of_topic(before, after, name)
    for name in sorted(before.dimensions.keys() | after.dimensions.keys()):
        found += _of_dimension(before.dimensions.get(name), after.dimensions.get(name))
    return sorted(found, key=lambda change: (change.contract, WEIGHTS.index(change.weight)))


def _of_topic(before: Catalog, after: Catalog, name: str) -> Iterator[Change]:
    old, new = before.topics.get(name), after.topics.get(name)
    if new is None:
        if old is not None:
            yield Change("breaking", name, old.owner, "the topic is gone", (*old.producers, *old.consumers))
        return
    if old is None:
        count = len(after.parsed_schema(name)["fields"])
        parties = (*new.producers, *new.consumers)
        yield Change("new", name, new.owner, f"topic, {count} fields, {new.partitions} partitions", parties)
        return
    yield from _of_keys(old, new, ("schema", "consumers", "producers", "partitions", "retention_days"))
    yield from _of_parties(new, "consumer", old.consumers, new.consumers)
    yield from _of_parties(new, "producer", old.producers, new.producers)
    if new.partitions != old.partitions:
        text = f"partitions: {old.partitions} → {new.partitions}"
        if new.partitions < old.partitions:
            yield Change("breaking", name, new.owner, f"{text}: a topic can't lose partitions", new.producers)
        else:
            yield Change("breaking", name, new.owner, f"{text}: {_MEANINGS['key']}", new.consumers)
            if new.lands_newest:
                doubled = "of a key that moves the lake table has a row from each partition: publish to a new topic"
                yield Change("breaking", name, new.owner, f"{text}: {doubled}", (LAKE,))
    if new.retention_days != old.retention_days:
        shorter = new.retention_days < old.retention_days
        text = f"retention_days: {old.retention_days} → {new.retention_days}"
        text += ": older records are deleted" if shorter else ""
        yield Change("breaking" if shorter else "changed", name, new.owner, text, new.consumers)
    yield from _of_schema(before, after, old, new)


def _of_schema(before: Catalog, after: Catalog, old: TopicContract, new: TopicContract) -> Iterator[Change]:
    texts = [before.schema(new.name), after.schema(new.name)]
    was, now = before.parsed_schema(new.name), after.parsed_schema(new.name)
    if was == now:
        return
    numbers = (old.schema_version, new.schema_version)
    # Of a file that was edited both states have one number.
    named = "its schema" if numbers[0] == numbers[1] else f"schema {numbers[0]} → {numbers[1]}"
    # Records of every earlier version are there.
    found = incompatibilities([*before.schemas(new.name), texts[1]], "BACKWARD_TRANSITIVE")
    for field, why in dict.fromkeys((each.field, each.text) for each in found):
        text = f"{named}: records that are there can't be read with it: field {field}: {why}"
        yield Change("breaking", new.name, new.owner, text, new.consumers)
    for each in incompatibilities(texts, "FORWARD"):
        text = f"{named}: readers by the schema before can't read new records: field {each.field}: {each.text}"
        yield Change("breaking", new.name, new.owner, text, new.consumers)
    told = [
        Change(weight, new.name, new.owner, f"{named}: {what}", new.consumers) for weight, what in _of_fields(was, now)
    ]
    yield from told or [
        Change("changed", new.name, new.owner, f"{named}: default values, symbols or types inside", new.consumers)
    ]


def _of_fields(was: Any, now: Any) -> Iterator[tuple[Weight, str]]:
    fields, earlier = dict(_fields(now)), dict(_fields(was))
    former = {
        path: name for path, field in fields.items() if (name := _former(path, field, earlier, fields)) is not None
    }
    for path, field in fields.items():
        origin = earlier.get(former.get(path, path))
        if origin is None:
            yield "new", f"field {path}: {kind(field['type'])}"
            continue
        if path in former:
            yield "changed", f"field {former[path]} is named {path}"
        if (a := kind(origin["type"])) != (b := kind(field["type"])):
            yield "changed", f"field {path}: {a} → {b}"
        if origin.get("doc") != field.get("doc"):
            yield "changed", f"field {path} means: {field.get('doc')}"
    for path in sorted(earlier.keys() - fields.keys() - set(former.values())):
        yield "changed", f"field {path} is gone"


def _of_dimension(old: DimensionContract | None, new: DimensionContract | None) -> Iterator[Change]:
    if new is None:
        if old is not None:
            yield Change("breaking", old.name, old.owner, "the dimension is gone", old.consumers)
        return
    if old is None:
        yield Change("new", new.name, new.owner, f"dimension, {len(new.columns)} columns", new.consumers)
        return
    yield from _of_keys(old, new, ("columns", "consumers"))
    was, now = ({column.name: column for column in each.columns} for each in (old, new))
    for name in sorted(was.keys() - now.keys()):
        yield Change("breaking", new.name, new.owner, f"column {name} is gone", new.consumers)
    for name, column in now.items():
        if name not in was:
            yield Change("new", new.name, new.owner, f"column {name}: {column.type}", new.consumers)
        elif was[name].type != column.type:
            text = f"column {name}: {was[name].type} → {column.type}: {_MEANINGS['type']}"
            yield Change("breaking", new.name, new.owner, text, new.consumers)
        elif was[name] != column:
            yield Change(
                "changed", new.name, new.owner, f"column {name}: source, nullable or description", new.consumers
            )
    yield from _of_parties(new, "consumer", old.consumers, new.consumers)


def _of_parties(
    contract: TopicContract | DimensionContract, role: str, was: tuple[str, ...], now: tuple[str, ...]
) -> Iterator[Change]:
    for each in now:
        if each not in was:
            yield Change("new", contract.name, contract.owner, f"{role} {each}", (each,))
    for each in was:
        if each not in now:
            yield Change("changed", contract.name, contract.owner, f"{each} is no {role} any more", (each,))


def _of_keys(
    old: TopicContract | DimensionContract, new: TopicContract | DimensionContract, others: tuple[str, ...]
) -> Iterator[Change]:
    """The keys of a contract's file but for `others`."""
    was, now = (each.model_dump(by_alias=True, mode="json") for each in (old, new))
    for key, value in now.items():
        if key in others or value == was[key]:
            continue
        text = f"{key}: {_said(was[key])} → {_said(value)}"
        meaning = _meaning(key, was[key], value, isinstance(new, DimensionContract))
        concerned = (LAKE,) if key == "lake" else new.consumers
        if meaning is None:
            yield Change("changed", new.name, new.owner, text, concerned)
        else:
            yield Change("breaking", new.name, new.owner, f"{text}: {meaning}", concerned)


def _meaning(key: str, was: Any, now: Any, of_dimension: bool) -> str | None:
    if of_dimension and key == "key":
        meaning = (
            "lookups find other rows, or none" if len(was) == len(now) else "pipelines that look up in it do not start"
        )
        return f"{meaning}; those that run keep the version that they have if its key no longer tells rows apart"
    if of_dimension and key == "valid":
        if was and now:
            return "lookups find other rows"
        return f"pipelines that look up in it do not start until as_of is {'there' if now else 'gone'}, and records of before are compared otherwise"
    if key == "derived_from":
        ids = [_ids(each) if isinstance(each, dict) else None for each in (was, now)]
        names = [each["named_by"] for each in (was, now) if isinstance(each, dict) and each["named_by"]]
        if ids[0] != ids[1]:
            return "the events get other ids"
        places = [(each["places"] or 0) if isinstance(each, dict) else 0 for each in (was, now)]
        if 0 < places[1] < places[0]:
            return "the places beyond keep what they said last"
        return "events are told apart by other fields" if len(names) > 1 and names[0] != names[1] else None
    if key == "lake":
        kept = {name: part for name, part in was.items() if name != "history_days"} if isinstance(was, dict) else None
        is_kept = isinstance(now, dict) and kept is not None and kept.items() <= now.items()
        return None if was == "none" or is_kept else _MEANINGS[key]
    if key == "compacted" and not now:
        return "each record is deleted when it is old, also the newest one of its key"
    return _MEANINGS.get(key)


def _ids(derivation: Mapping[str, Any]) -> tuple[Any, ...]:
    """What of a derivation the ids of the events depend on."""
    return (
        derivation["topic"],
        derivation.get("joined_with"),
        derivation.get("united_with"),
        derivation["records"] == "many",
    )


def _said(value: Any) -> str:
    return value if isinstance(value, str) and "\n" not in value else json.dumps(value, ensure_ascii=False)


def _fields(record: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every field by its dotted path, also those of records inside."""
    for field in record["fields"]:
        here = f"{path}.{field['name']}" if path else field["name"]
        yield here, field
        inner = non_null(field["type"])
        while isinstance(inner, dict) and inner.get("type") != "record":
            inner = non_null(inner.get("items", inner.get("values", inner.get("type"))))
        if isinstance(inner, dict):
            yield from _fields(inner, here)


def _former(path: str, field: dict[str, Any], earlier: dict[str, Any], fields: dict[str, Any]) -> str | None:
    """The path that a renamed field had."""
    folder = path.rpartition(".")[0]
    names = (f"{folder}.{alias}" if folder else alias for alias in field.get("aliases", ()))
    return None if path in earlier else next((name for name in names if name in earlier and name not in fields), None)

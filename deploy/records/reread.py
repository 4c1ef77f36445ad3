"""What a topic's records are when they are read with another schema: `reread`."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from contracts.checks.retained import WHATS, Outcome, Retained, What
from contracts.definitions.catalog import Catalog
from contracts.errors import ContractError, DecodeError, Truncated
from contracts.records.codec import NOT_AVRO, Codec
from contracts.records.coordinates import Coordinate
from contracts.records.headers import as_bytes
from contracts.records.limits import check_size
from contracts.servers.registry import Registry
from contracts.settings import Settings
from services.audit.errors import CouldNotAudit
from services.audit.sources.broker import Broker
from services.audit.sources.consume import consume

_TELL_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Reader:
    """Takes what a Subscriber with this schema takes."""

    codec: Codec
    most_bytes: int

    @classmethod
    def of(cls, catalog: Catalog, topic: str, schema_by_id: Callable[[int], str]) -> Reader:
        """By the contract of a topic. Raises ContractError if its schema is none of Avro's."""
        try:
            codec = Codec(schema_by_id, reader_schema=catalog.schema(topic))
        except NOT_AVRO as error:
            raise ContractError(
                f"the schema of {topic} can't be read with ({error}): run headrace contracts check"
            ) from None
        return cls(codec, catalog.topic(topic).most_record_bytes)

    def read(self, key: bytes | None, value: bytes | None) -> dict[str, Any] | DecodeError:
        """The event, or why it is none. Raises RegistryUnavailable."""
        try:
            check_size(key, value, self.most_bytes)
            if value is None:
                raise Truncated("the record has no value")
            return self.codec.decode(value)
        except DecodeError as error:
            return error


class Comparison:
    """Counts what two readers make of the same records."""

    def __init__(self, before: Reader, after: Reader, names: Mapping[str, str]) -> None:
        """`names` are the fields that both have, by their new names the old ones."""
        self._before, self._after, self._names = before, after, names
        self._counts = Counter[tuple[What, str]]()
        self._first: dict[tuple[What, str], Outcome] = {}

    def take(self, place: Coordinate, key: bytes | None, value: bytes | None) -> None:
        """One record more."""
        was, now = self._before.read(key, value), self._after.read(key, value)
        if isinstance(now, DecodeError):
            what: What = "still a dead letter" if isinstance(was, DecodeError) else "dead letter"
            self._count(what, type(now).__name__, place, after=str(now))
            return
        if isinstance(was, DecodeError):
            self._count("appears", "", place)
            return
        changed = [new for new, old in self._names.items() if _differ(was[old], now[new])]
        for name in changed:
            self._count("field", name, place, was[self._names[name]], now[name])
        self._count("changed" if changed else "same", "", place)

    def outcomes(self) -> tuple[Outcome, ...]:
        """What was counted, each with its first record."""
        found = (first.model_copy(update={"count": self._counts[each]}) for each, first in self._first.items())
        return tuple(sorted(found, key=lambda each: (WHATS.index(each.what), each.name)))

    def _count(self, what: What, name: str, place: Coordinate, before: Any = None, after: Any = None) -> None:
        self._counts[what, name] += 1
        if (what, name) not in self._first:
            self._first[what, name] = Outcome(
                what=what, name=name, count=1, coordinate=str(place), before=_json(before), after=_json(after)
            )


def reread(
    settings: Settings, topic: str, before: Catalog, after: Catalog, most: int, say: Callable[[str], None]
) -> Retained:
    """The committed records of a topic, the newest `most` of each partition, as `before` and `after` have them. Writes nothing.

    Raises RegistryUnavailable. Where brokers don't let it read, the result says so.
    """
    broker, kafka = Broker(settings.kafka.client_config()), settings.kafka.client_config()
    told_at = time.monotonic()
    with Registry(settings.registry) as registry:
        old, new = (Reader.of(each, topic, registry.by_id) for each in (before, after))
        comparison = Comparison(old, new, shared_fields(before.parsed_schema(topic), after.parsed_schema(topic)))
        count = 0
        try:
            starts, ends = broker.starts(topic), broker.ends(topic)
            newest = {partition: max(starts[partition], end - most) for partition, end in ends.items()}
            say(f"{topic}: reading {sum(ends.values()) - sum(newest.values()):,} offsets")
            for partition, start in newest.items():
                for batch in consume(kafka, topic, partition, start, ends[partition]):
                    for message in batch:
                        comparison.take(Coordinate.of(message), as_bytes(message.key()), as_bytes(message.value()))
                    count += len(batch)
                    if time.monotonic() - told_at > _TELL_SECONDS:
                        told_at = time.monotonic()
                        say(f"{topic}: {count:,} records read")
        except CouldNotAudit as error:
            return Retained(topic=topic, problem=str(error))
    older = sum(newest[partition] - starts[partition] for partition in newest)
    return Retained(topic=topic, older=older, outcomes=comparison.outcomes())


def shared_fields(before: Any, after: Any) -> dict[str, str]:
    """The fields of two schemas, JSON values, that mean the same: by the new name the old one, which may be an alias."""
    there = {field["name"] for field in before["fields"]}
    named = {field["name"]: [field["name"], *field.get("aliases", ())] for field in after["fields"]}
    return {new: old for new, names in named.items() if (old := next((each for each in names if each in there), None))}


def _differ(was: Any, now: Any) -> bool:
    # What is not a number equals nothing, and its name does.
    return bool(was != now) and bool(_json(was) != _json(now))


def _json(value: Any) -> Any:
    # JSON has neither NaN nor infinity.
    return json.loads(json.dumps(value, default=str), parse_constant=str)

"""`headrace trace`: one event through every hop, from its raw record to tables and alerts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from confluent_kafka import Message
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import TableNotFoundError

from contracts import topics
from contracts.definitions.catalog import Catalog
from contracts.definitions.topic import TopicContract
from contracts.errors import ConsumeError
from contracts.records.codec import Codec
from contracts.records.coordinates import Coordinate
from contracts.records.dead_letter_headers import ERRORS
from contracts.records.headers import header_of, headers_of
from contracts.servers.registry import Registry
from contracts.settings import Settings
from deploy.dead_letter_text import instant, printable
from deploy.errors import DeployError
from deploy.records.tail import Start, decoded, messages

_EPOCH = datetime.fromtimestamp(0, UTC)
_CLOCKS_DIFFER = timedelta(seconds=60)
"""By so much a record that is made of another may bear an earlier time."""


@dataclass(frozen=True, slots=True)
class Step:
    """Where the event was found: `at` is the record's time, None of a row, whose commit bears none; `what` is said of it."""

    hop: str
    place: str
    at: datetime | None
    what: str


class Trace:
    """Looks through the topics and tables that an event may have come to."""

    def __init__(self, settings: Settings, catalog: Catalog, registry: Registry, say: Callable[[str], None]) -> None:
        """`say` is told what is being read."""
        self._settings, self._catalog, self._say = settings, catalog, say
        self._codec = Codec(registry.by_id)

    def steps(self, coordinate: Coordinate) -> list[Step]:
        """Of the raw record at a coordinate, or of the one that a derived record at it was made of. Raises DeployError, ConsumeError."""
        coordinate = coordinate.record
        topic, message = self._record(coordinate)
        if topic.names_records_of is not None:
            event_id = _event_id(headers_of(message))
            raw = Coordinate.parse(event_id)
            if raw is None:
                raise DeployError(f"{coordinate} names no raw record: its ce_id is {event_id!r}.")
            coordinate = raw.record
            topic, message = self._record(coordinate)
        found = [self._step("raw record", message)]
        since = Start(since=max((found[0].at or _EPOCH) - _CLOCKS_DIFFER, _EPOCH))
        letters, places = [topic], [coordinate]
        found += self._rows(topic, coordinate)
        for derived in self._catalog.topics.values():
            if derived.names_records_of == topic.name:
                records = list(self._derived(derived, coordinate, since))
                found += records
                # Tables, letters and alerts have records of a pipeline with state by their own coordinates.
                own = [place for each in records if (place := Coordinate.parse(each.place)) and derived.is_stateful]
                for place in own if derived.is_stateful else [coordinate]:
                    found += self._rows(derived, place)
                places += own
                letters.append(derived)
        for each in letters:
            found += self._letters("dead letter", each.dead_letter_topic, places, since)
        for each in self._catalog.topics.values():
            if each.late_topic is not None and topic.name in each.sources:
                found += self._letters("late record", each.late_topic, places, since)
        return [*found, *self._alerts(places, since)]

    def coordinates_of(self, key: str) -> list[Coordinate]:
        """The raw records with this key, of all topics with keys, in the order of their times."""
        found = []
        for topic in self._catalog.topics.values():
            if topic.key is not None and topic.names_records_of is None:
                self._say(f"reading {topic.name} for the key")
                records = (each for each in self._of(topic.name, Start()) if each.key() == key.encode())
                found += [(each.timestamp()[1], Coordinate.of(each)) for each in records]
        return [place for _, place in sorted(found)]

    def _record(self, coordinate: Coordinate) -> tuple[TopicContract, Message]:
        topic = next((each for each in self._catalog.topics.values() if each.name == coordinate.topic), None)
        if topic is None:
            raise DeployError(f"There is no contract of a topic {coordinate.topic}.")
        start = Start(at=(coordinate.partition, coordinate.offset))
        message = next(messages(self._settings, coordinate.topic, start), None)
        if message is None or Coordinate.of(message) != coordinate:
            raise DeployError(f"There is no record {coordinate}: it was deleted, or never was.")
        return topic, message

    def _of(self, topic: str, start: Start) -> Iterator[Message]:
        """Nothing of a topic that is not there."""
        try:
            yield from messages(self._settings, topic, start)
        except ConsumeError as error:
            self._say(str(error))

    def _derived(self, topic: TopicContract, coordinate: Coordinate, since: Start) -> Iterator[Step]:
        self._say(f"reading {topic.name}")
        for message in self._of(topic.name, since):
            if _is_of(coordinate, _event_id(headers_of(message))):
                yield self._step("derived record", message)

    def _letters(self, hop: str, topic: str, places: Sequence[Coordinate], since: Start) -> Iterator[Step]:
        self._say(f"reading {topic}")
        for message in self._of(topic, since):
            headers = headers_of(message)
            if any(_is_of(place, _event_id(headers)) for place in places):
                by, why = (header_of(headers, f"{ERRORS}{name}") for name in ("connector.name", "exception.message"))
                said = f"by {(by or b'?').decode(errors='replace')}: {(why or b'').decode(errors='replace')}"
                yield replace(self._step(hop, message), what=said)

    def _alerts(self, places: Sequence[Coordinate], since: Start) -> Iterator[Step]:
        name = self._catalog.topic(topics.ALERTS_RAISED.name).name
        self._say(f"reading {name}")
        for message in self._of(name, since):
            line = decoded(self._codec, message)
            if line.event is not None and any(_is_of(place, line.event["coordinate"]) for place in places):
                said = f"{line.event['severity']} {line.event['rule']}: {line.event['message']}"
                yield Step("alert", line.coordinate, line.at, said)

    def _rows(self, topic: TopicContract, coordinate: Coordinate) -> Iterator[Step]:
        if topic.lake is None:
            return
        s3 = self._settings.s3
        try:
            table = DeltaTable(f"s3://{s3.bucket}/lake/{topic.lake.table}", storage_options=s3.delta_options())
        except TableNotFoundError:
            return
        # Letters, digits and points: see `Coordinate`.
        where = f"(coordinate = '{coordinate}' OR coordinate LIKE '{coordinate}/%')"
        if "raw_offset" in {field.name for field in table.schema().fields}:
            # Files have statistics of it: most need not be read.
            where += f" AND raw_offset = {coordinate.offset}"
        chosen = "SELECT record_partition, record_offset FROM rows WHERE"
        rows = pa.table(QueryBuilder().register("rows", table).execute(f"{chosen} {where} ORDER BY record_offset"))
        for row in rows.to_pylist():
            of = Coordinate(topic.name, row["record_partition"], row["record_offset"])
            yield Step("row", f"lake/{topic.lake.table}", None, f"of {of}")

    def _step(self, hop: str, message: Message) -> Step:
        line = decoded(self._codec, message)
        return Step(hop, line.coordinate, line.at, line.said)


def _event_id(headers: Sequence[tuple[str, bytes | None]]) -> str:
    return (header_of(headers, "ce_id") or b"").decode(errors="replace")


def _is_of(coordinate: Coordinate, text: str) -> bool:
    """Whether a text is a raw record's coordinate, or that of a part of it."""
    found = Coordinate.parse(text)
    return found is not None and found.record == coordinate


def lines(steps: list[Step], characters: int | None) -> Iterator[str]:
    """A line for each step with its delay behind the raw record, cut to a width; None: whole."""
    began = steps[0].at
    width = max(len(step.place) for step in steps)
    for step in steps:
        if step.at is None or began is None:
            when = ""
        elif step is steps[0]:
            when = instant(step.at)
        else:
            when = f"{(step.at - began).total_seconds():+.3f} s"
        line = f"{step.hop:<14}  {when:>24}  {step.place:<{width}}  {printable(step.what)}"
        yield line if characters is None or len(line) <= characters else f"{line[: characters - 2]} …"


def as_json(steps: list[Step]) -> list[Mapping[str, Any]]:
    """One object for each step."""
    return [
        {
            "hop": each.hop,
            "place": each.place,
            "at": None if each.at is None else each.at.isoformat(),
            "what": each.what,
        }
        for each in steps
    ]

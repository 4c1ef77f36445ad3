"""Rows of an enriched topic, read back and compared with what they must be, whoever wrote them.

A row is the record's key and the event's fields. `dimension_versions`, `revision` and `unmatched` are left out: they are Headrace's own, and
no peer writes them. What the rows must be says the oracle of the system tests, which shares no code with any contender: of
each raw record that was there to read, the enriched flight, as often as it was there.
"""

from __future__ import annotations

import io
import json
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import fastavro
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from contracts import topics
from contracts.definitions.catalog import load_catalog
from contracts.servers.registry import Registry
from contracts.settings import Settings
from tests.system.oracle import enriched_flights

LEFT_OUT = ("unmatched", "dimension_versions", "revision")
FIELDS: tuple[str, ...] = tuple(
    field["name"]
    for field in json.loads(load_catalog().schema(topics.FLIGHTS_DEPARTED_ENRICHED.name))["fields"]
    if field["name"] not in LEFT_OUT
)
Row: TypeAlias = tuple[object, ...]
"""The key as text, then the values of `FIELDS`; a field that isn't there is None."""

_FRAME_BYTES = 5
_AT_ONCE = 10_000
_SILENT_SECONDS = 10.0
"""How long rows that are missing may still come: a transaction may be committed moments after its offsets."""


def expected_rows(settings: Settings) -> Counter[Row]:
    """The rows that the raw topic's records must become."""
    flights = enriched_flights()
    sent = Counter(_text(message.key()) for message in _messages(settings, topics.FLIGHTS_DEPARTED.name, {}, 0))
    return Counter({row_of(key, flights[key]): count for key, count in sent.items()})


def written_rows(settings: Settings, topic: str, since: Mapping[int, int], expected: int) -> Counter[Row]:
    """The committed rows of a topic since these offsets, by partition; waits a while for as many as are expected."""
    bodies = Counter(
        (_text(message.key()), bytes(message.value() or b"")) for message in _messages(settings, topic, since, expected)
    )
    rows: Counter[Row] = Counter()
    with Registry(settings.registry) as registry:
        schemas: dict[bytes, Any] = {}
        for (key, body), count in bodies.items():
            frame = body[:_FRAME_BYTES]
            if frame not in schemas:
                schemas[frame] = fastavro.parse_schema(json.loads(registry.by_id(int.from_bytes(frame[1:], "big"))))
            event: Any = fastavro.schemaless_reader(io.BytesIO(body[_FRAME_BYTES:]), schemas[frame], None)
            rows[row_of(key, event)] += count
    return rows


def row_of(key: str, event: Mapping[str, object]) -> Row:
    """The row of one record."""
    return (key, *(event.get(name) for name in FIELDS))


def differences(expected: Counter[Row], written: Counter[Row], limit: int = 5) -> list[str]:
    """What is wrong with the rows written, one line for each of the first rows; none if nothing is."""
    missing, surplus = expected - written, written - expected
    others: defaultdict[object, list[Row]] = defaultdict(list)
    for row in surplus:
        others[row[0]].append(row)
    lines = []
    for row, count in missing.items():
        if others[row[0]]:
            lines.append(f"{row[0]}: {_fields(row, others[row[0]].pop())}")
        else:
            lines.append(f"{row[0]}: {count} missing")
    lines += [f"{row[0]}: {surplus[row]} too many" for rows in others.values() for row in rows]
    if len(lines) > limit:
        lines[limit:] = [f"and {len(lines) - limit} more"]
    return lines


def ends(settings: Settings, topic: str) -> dict[int, int]:
    """The offset after the last committed record of each partition of a topic."""
    consumer = _consumer(settings)
    partitions = consumer.list_topics(topic, 10).topics[topic].partitions
    found = {each: consumer.get_watermark_offsets(TopicPartition(topic, each), timeout=10)[1] for each in partitions}
    consumer.close()
    return found


def _messages(settings: Settings, topic: str, since: Mapping[int, int], expected: int) -> Iterator[Message]:
    consumer = _consumer(settings)
    partitions = consumer.list_topics(topic, 10).topics[topic].partitions
    consumer.assign([TopicPartition(topic, each, since.get(each, 0)) for each in partitions])
    ended: set[int] = set()
    found, heard_at = 0, time.monotonic()
    while len(ended) < len(partitions) or (found < expected and time.monotonic() < heard_at + _SILENT_SECONDS):
        for message in consumer.consume(_AT_ONCE, timeout=0.5):
            error, partition = message.error(), message.partition() or 0
            if error is None:
                ended.discard(partition)
                found, heard_at = found + 1, time.monotonic()
                yield message
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(partition)
    consumer.close()


def _consumer(settings: Settings) -> Consumer:
    return Consumer(
        settings.kafka.client_config()
        | {
            "group.id": "bench-rows",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )


def _text(key: str | bytes | None) -> str:
    return key if isinstance(key, str) else (key or b"").decode()


def _fields(expected: Row, written: Row) -> str:
    names: Sequence[str] = ("key", *FIELDS)
    return ", ".join(
        f"{name} is {found!r}, not {right!r}"
        for name, right, found in zip(names, expected, written, strict=True)
        if right != found
    )

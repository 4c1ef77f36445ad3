"""`newest_list`: the places that the newest batch of a topic has written."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from confluent_kafka import Message

from contracts.errors import DecodeError, UnknownSchemaId
from contracts.records.codec import Codec
from contracts.records.coordinates import Coordinate
from contracts.records.headers import as_bytes, header_of, headers_of
from contracts.servers.registry import Registry
from contracts.settings import RegistrySettings
from services.audit.rankings.ranked_list import Place
from services.audit.records.writers import Writers
from services.audit.sources.consume import consume

_ID = re.compile(rb"[^/]+/([0-9a-f]{8})/([0-9]{1,18})")
_MARKERS = 100
"""Offsets behind the last list that may have no record: the markers of transactions that only renew a position."""


def newest_list(
    kafka: Mapping[str, str],
    registry: RegistrySettings,
    topic: str,
    subject: str,
    schema: str,
    places: int,
    start: int,
    end: int,
    known_by: float,
) -> Sequence[Place]:
    """Those of the last batch that has records between these offsets of partition 0, with those whose ids name no batch. Raises what `consume` does, and RegistryUnavailable.
    `known_by`: see `Writers`.
    """
    found: list[Place] = []
    size = places + _MARKERS
    while not found and start < end:
        first = max(start, end - size)
        found = list(_read(kafka, registry, topic, subject, schema, first, end, known_by))
        if first == start:
            break
        size *= 10
    newest = max(((each.run, each.batch) for each in found[-1:]), default=("", -1))
    return [each for each in found if (each.run, each.batch) == newest or each.batch < 0]


def _read(
    kafka: Mapping[str, str],
    registry: RegistrySettings,
    topic: str,
    subject: str,
    schema: str,
    start: int,
    end: int,
    known_by: float,
) -> Sequence[Place]:
    with Registry(registry) as client:
        writers = Writers(client, subject, known_by)

        def written_by(schema_id: int) -> str:
            if (text := writers.get(schema_id)) is None:
                raise UnknownSchemaId(f"schema id {schema_id} is in no version of the subject")
            return text

        codec = Codec(written_by, reader_schema=schema)
        return [_place(codec, topic, message) for batch in consume(kafka, topic, 0, start, end) for message in batch]


def _place(codec: Codec, topic: str, message: Message) -> Place:
    key, value = as_bytes(message.key()), as_bytes(message.value())
    named = _ID.fullmatch(header_of(headers_of(message), "ce_id") or b"")
    try:
        event = None if value is None else codec.decode(value)
    except DecodeError:
        event = None
    return Place(
        str(Coordinate(topic, 0, message.offset() or 0, None)),
        None if key is None else key.decode(errors="replace"),
        "" if named is None else named[1].decode(),
        -1 if named is None else int(named[2]),
        event,
    )

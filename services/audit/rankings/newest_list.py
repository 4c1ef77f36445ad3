"""`newest_list`: the places that the newest batch of a topic has written; `told_apart`, from those that were sent again."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from confluent_kafka import Message

from contracts.records.coordinates import Coordinate
from contracts.records.dead_letter_headers import REDRIVEN_FROM
from contracts.records.headers import as_bytes, header_of, headers_of
from contracts.servers.registry import Registry
from contracts.settings import RegistrySettings
from services.audit.rankings.ranked_list import Place
from services.audit.records.decoding import Decoder
from services.audit.records.writers import Writers
from services.audit.sources.consume import consume

_ID = re.compile(rb"[^/]+/([0-9a-f]{8})/([0-9]{1,18})")
_MORE = 100
"""Offsets that are read at least beside the places: markers of transactions, and records of those that were aborted."""


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
) -> tuple[Sequence[Place], Sequence[Place]]:
    """Those between these offsets of partition 0, `told_apart`. Raises what `consume` does, and RegistryUnavailable. `known_by`: see `Writers`."""
    size = places + _MORE
    while True:
        first = max(start, end - size)
        found = _read(kafka, registry, topic, subject, schema, first, end, known_by)
        told = {(each.run, each.batch) for each in found if each.batch >= 0 and not each.is_redriven}
        # It is whole if something of before it was read.
        if first <= start or len(told) > 1:
            return told_apart(found)
        size *= 10


def told_apart(found: Sequence[Place]) -> tuple[Sequence[Place], Sequence[Place]]:
    """Of records in the topic's order those of the last batch, and those whose ids name no batch; and older ones that readers take for the newest of their
    place, for a redrive has put them behind it.
    """
    named = [each for each in found if each.batch >= 0]
    newest = max(reversed(named), key=lambda each: not each.is_redriven, default=None)

    def is_older(each: Place) -> bool:
        return each.batch >= 0 and newest is not None and (each.run, each.batch) != (newest.run, newest.batch)

    sent = [each for each in found if not is_older(each) and not each.is_redriven]
    there = {each.key for each in sent}
    again = {each.key: each for each in found if not is_older(each) and each.is_redriven and each.key not in there}
    last = {each.key: each for each in found}
    return [*sent, *again.values()], [each for each in last.values() if is_older(each) and each.is_redriven]


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
        decoder = Decoder(Writers(client, subject, known_by), schema)
        return [_place(decoder, topic, message) for batch in consume(kafka, topic, 0, start, end) for message in batch]


def _place(decoder: Decoder, topic: str, message: Message) -> Place:
    key, event, headers = as_bytes(message.key()), decoder.event(as_bytes(message.value())), headers_of(message)
    named = _ID.fullmatch(header_of(headers, "ce_id") or b"")
    return Place(
        str(Coordinate(topic, 0, message.offset() or 0, None)),
        None if key is None else key.decode(errors="replace"),
        "" if named is None else named[1].decode(),
        -1 if named is None else int(named[2]),
        None if event is None else event.fields,
        header_of(headers, REDRIVEN_FROM) is not None,
    )

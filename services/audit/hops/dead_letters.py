"""`DeadLetter`: a record that could not be handled, and whose it is."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from confluent_kafka import Consumer, KafkaException

from contracts.dead_letters.letter import DeadLetter as Letter
from contracts.events import DeadLetterSettled
from contracts.records.coordinates import Coordinate
from contracts.records.dead_letter_headers import ERRORS
from contracts.records.headers import header_of, headers_of
from contracts.records.limits import record_size
from contracts.records.missed_windows import MissedWindows
from contracts.servers.brokers import watermarks
from services.audit.records.records import payload_digests
from services.audit.sources.consume import consume
from services.audit.values.place import code

_TIMEOUT_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """`at` is its own place, `coordinate` that of the record which it is of, `by` who put it there, `payload` the digest of
    key and value; of a stump that of the record itself, if it has the size and value that the stump tells;
    `missed` are the windows that a late record says it came too late for.
    """

    at: int
    coordinate: str
    by: str
    payload: int
    missed: MissedWindows | None = None


def dead_letters(
    kafka: Mapping[str, str], topic: str, partition: int, start: int, end: int, *, strangers: bool = False
) -> Iterator[DeadLetter]:
    """Those of a dead-letter topic's partition that are of records: others were never on a topic. With `strangers` those too, without coordinate."""
    for batch in consume(kafka, topic, partition, start, end):
        payloads = payload_digests([message.key() for message in batch], [message.value() for message in batch])
        for message, payload in zip(batch, payloads, strict=True):
            headers = headers_of(message)
            coordinate, by = header_of(headers, "ce_id"), header_of(headers, f"{ERRORS}connector.name")
            # A record that never was on a topic is set aside without offset.
            if coordinate is not None and by is not None and header_of(headers, f"{ERRORS}offset") is not None:
                letter = Letter.of(message)
                if letter.stump_bytes is not None and (of_record := _payload_of_record(kafka, letter)) is not None:
                    payload = of_record
                yield DeadLetter(
                    code(partition, message.offset() or 0),
                    coordinate.decode(errors="replace"),
                    by.decode(errors="replace"),
                    int(np.uint64(payload)),
                    letter.missed,
                )
            elif strangers:
                yield DeadLetter(code(partition, message.offset() or 0), "", "", int(np.uint64(payload)))


def _payload_of_record(kafka: Mapping[str, str], stump: Letter) -> np.uint64 | None:
    """The digest of the record that a stump is of; None if it is gone, or another one."""
    origin = stump.origin
    if origin is None:
        return None
    asker = Consumer({**kafka, "group.id": "headrace-audit", "log_level": 0})
    try:
        low, high = watermarks(asker, origin.topic, origin.partition, _TIMEOUT_SECONDS)
    except KafkaException:  # there is no such topic
        return None
    finally:
        asker.close()
    if not low <= origin.offset < high:
        return None
    batches = consume(kafka, origin.topic, origin.partition, origin.offset, origin.offset + 1)
    for message in itertools.chain.from_iterable(batches):
        key, value = message.key(), message.value()
        digest = None if value is None else hashlib.sha256(value).hexdigest()
        if (record_size(key, value, headers_of(message)), digest) == (stump.stump_bytes, stump.value_sha256):
            return np.uint64(payload_digests([key], [value])[0])
    return None


@dataclass(frozen=True, slots=True)
class Settled:
    """An entry of the ledger: `action` about a letter on the dead-letter `topic`, which `by` had put there for the record at
    `coordinate`, None if the entry doesn't say who; decided at `at_ms`, milliseconds since 1970.
    """

    action: str
    topic: str
    coordinate: str
    by: str | None
    at_ms: int


def settled(entries: Iterable[DeadLetterSettled]) -> Iterator[Settled]:
    """What became of letters that are of records."""
    for entry in entries:
        letter = Coordinate.parse(entry.dead_letter)
        if letter is not None and entry.coordinate is not None:
            at_ms = round(entry.settled_at.timestamp() * 1000)
            yield Settled(entry.action, letter.topic, entry.coordinate, entry.service, at_ms)

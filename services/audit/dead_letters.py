"""`DeadLetter`: a record that could not be handled, and whose it is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from contracts.dead_letters.headers import ERRORS
from contracts.events import DeadLetterSettled
from contracts.headers import header_of, headers_of
from services.audit.consume import consume
from services.audit.place import code
from services.audit.records import payload_digests


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """`at` is its own place, `coordinate` that of the record which it is of, `by` who put it there, `payload` the digest of
    key and value.
    """

    at: int
    coordinate: str
    by: str
    payload: int


def dead_letters(kafka: Mapping[str, str], topic: str, partition: int, start: int, end: int) -> Iterator[DeadLetter]:
    """Those of a dead-letter topic's partition that are of records: others were never on a topic."""
    for batch in consume(kafka, topic, partition, start, end):
        payloads = payload_digests([message.key() for message in batch], [message.value() for message in batch])
        for message, payload in zip(batch, payloads, strict=True):
            headers = headers_of(message)
            coordinate, by = header_of(headers, "ce_id"), header_of(headers, f"{ERRORS}connector.name")
            # A record that never was on a topic is set aside without offset.
            if coordinate is not None and by is not None and header_of(headers, f"{ERRORS}offset") is not None:
                yield DeadLetter(
                    code(partition, message.offset() or 0),
                    coordinate.decode(errors="replace"),
                    by.decode(errors="replace"),
                    int(np.uint64(payload)),
                )


@dataclass(frozen=True, slots=True)
class Settled:
    """An entry of the ledger: `action` about a letter on the dead-letter `topic`, which `by` had put there for the record at
    `coordinate`; None if the entry doesn't say who.
    """

    action: str
    topic: str
    coordinate: str
    by: str | None


def settled(entries: Iterable[DeadLetterSettled]) -> Iterator[Settled]:
    """What became of letters that are of records."""
    for entry in entries:
        if entry.coordinate is not None:
            yield Settled(entry.action, entry.dead_letter.partition("/")[0], entry.coordinate, entry.service)

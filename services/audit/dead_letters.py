"""`DeadLetter`: a record that could not be handled, and whose it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from contracts.dead_letters.headers import ERRORS
from contracts.errors import DecodeError
from contracts.settings import RegistrySettings
from services.audit.consume import consume, header
from services.audit.entries import entries
from services.audit.errors import CouldNotAudit
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
            coordinate = header(message, "ce_id")
            by = header(message, f"{ERRORS}connector.name")
            # A record that never was on a topic is set aside without offset.
            if coordinate is not None and by is not None and header(message, f"{ERRORS}offset") is not None:
                yield DeadLetter(
                    code(partition, message.offset() or 0),
                    coordinate.decode(errors="replace"),
                    by.decode(errors="replace"),
                    int(np.uint64(payload)),
                )


def purged(
    kafka: Mapping[str, str], registry: RegistrySettings, topic: str, schema: str, partition: int, start: int, end: int
) -> Iterator[tuple[str, str]]:
    """Dead-letter topics, and the coordinates of records whose letters there somebody gave up. Raises CouldNotAudit if the ledger
    can't be read.
    """
    for place, entry in entries(kafka, registry, topic, schema, partition, start, end):
        if isinstance(entry, DecodeError):
            raise CouldNotAudit(f"{place}: no entry of the ledger: {entry}") from entry
        if entry["action"] == "purged" and entry["coordinate"] is not None:
            yield entry["dead_letter"].partition("/")[0], entry["coordinate"]

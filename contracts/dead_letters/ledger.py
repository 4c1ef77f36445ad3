"""`Ledger`: what became of dead letters, as `deadletters.settled.v1` tells it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Self

from pydantic import ValidationError

from contracts import topics
from contracts.dead_letters.letter import DeadLetter
from contracts.dead_letters.log import committed_records, wait_for_open_transactions
from contracts.errors import DecodeError
from contracts.events import DeadLetterSettled, Settlement
from contracts.records.codec import Codec
from contracts.records.coordinates import Coordinate
from contracts.records.dead_letter_headers import TEXT_CHARACTERS
from contracts.servers.registry import Registry
from contracts.settings import KafkaSettings

LEDGER = topics.DEADLETTERS_SETTLED.name

_Place = tuple[str, str | None]
"""A coordinate and the digest of what lay there: a topic that was made anew has other records at the same coordinates."""


class Ledger:
    """Which dead letters were redriven or purged. `passed_over`: coordinates of records on its topic that are no entries."""

    def __init__(self, entries: Iterable[DeadLetterSettled] = ()) -> None:
        self.passed_over: list[str] = []
        self._redriven: set[_Place] = set()
        self._purged: set[_Place] = set()
        for entry in entries:
            self.add(entry)

    @classmethod
    def read(
        cls, kafka: KafkaSettings, registry: Registry, schemas: Sequence[str], partitions: int, *, complete: bool
    ) -> Self:
        """All entries, by the contract's `schemas`, the current one last: dead letters of one record may lie on several topics.
        `complete` waits for those behind somebody's open transaction.

        What can't be decoded is no entry: those are written by `Settling` only, with this schema. Raises ConsumeError, RegistryError.
        """
        if complete:
            wait_for_open_transactions(kafka, LEDGER, partitions)
        ledger, codecs = cls(), _codecs(registry, schemas)
        for message in committed_records(kafka, LEDGER, partitions):
            entry = _entry(message.value() or b"", codecs)
            if entry is not None:
                ledger.add(entry)
            else:
                ledger.passed_over.append(str(Coordinate.of(message)))
        return ledger

    def add(self, entry: DeadLetterSettled) -> None:
        """Take in one entry."""
        if entry.action is Settlement.purged:
            self._purged.add((entry.dead_letter, entry.value_sha256))
            return
        self._redriven.add((entry.dead_letter, entry.value_sha256))
        if entry.coordinate is not None:
            self._redriven.add((entry.coordinate, entry.value_sha256))

    def is_redriven(self, letter: DeadLetter) -> bool:
        """Whether its record was sent back: by this dead letter, or by another one of the same record.

        `live` and `lake` both read a raw topic, so one bad record makes two dead letters. So do `lake` and alerting of an
        enriched one, on two topics: alerting's lie with its alerts'.
        """
        digest = letter.value_sha256
        return (letter.coordinate, digest) in self._redriven or (str(letter.origin), digest) in self._redriven

    def is_purged(self, letter: DeadLetter) -> bool:
        """Whether it was given up; then it is about to be deleted."""
        return (letter.coordinate, letter.value_sha256) in self._purged

    def digests(self, topic: str) -> frozenset[str]:
        """SHA-256 of the values of all that was settled of a dead-letter topic, whether it is there still or not."""
        places = self._purged | self._redriven
        return frozenset(digest for at, digest in places if digest is not None and at.startswith(f"{topic}/"))


def _codecs(registry: Registry, schemas: Sequence[str]) -> list[Codec]:
    """The registry's, then one for each schema: a registry that was made anew does not know the ids of entries."""
    lookups = [registry.by_id, *(_always(schema) for schema in reversed(schemas))]
    return [Codec(lookup, reader_schema=schemas[-1]) for lookup in lookups]


def _always(schema: str) -> Callable[[int], str]:
    return lambda _: schema


def _entry(value: bytes, codecs: Sequence[Codec]) -> DeadLetterSettled | None:
    for codec in codecs:
        try:
            return DeadLetterSettled.model_validate(codec.decode(value))
        except (DecodeError, ValidationError):
            # In a registry that was made anew its id may be unknown, or mean another schema.
            continue
    return None


def settled(letter: DeadLetter, action: Settlement, at: datetime) -> DeadLetterSettled:
    """The ledger's entry about a letter."""
    return DeadLetterSettled(
        dead_letter=letter.coordinate,
        coordinate=None if letter.origin is None else str(letter.origin),
        service=None if letter.by is None else letter.by[:TEXT_CHARACTERS],
        action=action,
        reason=letter.reason[:TEXT_CHARACTERS],
        value_sha256=letter.value_sha256,
        settled_at=at,
    )

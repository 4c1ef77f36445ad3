"""`Ledger`: what became of dead letters, as `deadletters.settled.v1` tells it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Self

from pydantic import ValidationError

from contracts import topics
from contracts.codec import Codec
from contracts.dead_letters.letter import DeadLetter
from contracts.dead_letters.log import committed_records, wait_for_open_transactions
from contracts.errors import DecodeError, Malformed
from contracts.events import DeadLetterSettled, Settlement
from contracts.registry import Registry
from contracts.settings import KafkaSettings

LEDGER = topics.DEADLETTERS_SETTLED.name

_Place = tuple[str, str | None]
"""A coordinate and the digest of what lay there: a topic that was made anew has other records at the same coordinates."""


class Ledger:
    """Which dead letters were redriven or purged."""

    def __init__(self, entries: Iterable[DeadLetterSettled] = ()) -> None:
        self._redriven: set[_Place] = set()
        self._purged: set[_Place] = set()
        for entry in entries:
            self.add(entry)

    @classmethod
    def read(cls, kafka: KafkaSettings, registry: Registry, schema: str, partitions: int, *, complete: bool) -> Self:
        """All entries, by the contract's `schema`: dead letters of one record may lie on several topics. `complete` waits for
        those behind somebody's open transaction.

        Raises ConsumeError, RegistryError, or Malformed when the topic holds what is no entry.
        """
        if complete:
            wait_for_open_transactions(kafka, LEDGER, partitions)
        ledger, codec = cls(), Codec(registry.by_id, reader_schema=schema)
        for message in committed_records(kafka, LEDGER, partitions):
            try:
                ledger.add(DeadLetterSettled.model_validate(codec.decode(message.value() or b"")))
            except (DecodeError, ValidationError) as error:
                what = f"{LEDGER}/{message.partition()}/{message.offset()} is no entry of the ledger: {error}"
                raise Malformed(f"{what}. It may say that a record went back, so none does") from error
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


def settled(letter: DeadLetter, action: Settlement, at: datetime) -> DeadLetterSettled:
    """The ledger's entry about a letter."""
    return DeadLetterSettled(
        dead_letter=letter.coordinate,
        coordinate=None if letter.origin is None else str(letter.origin),
        service=letter.by,
        action=action,
        reason=letter.reason,
        value_sha256=letter.value_sha256,
        settled_at=at,
    )

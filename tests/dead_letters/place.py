"""A topic of a test's own with its dead letters, beside the real ledger."""

from __future__ import annotations

import dataclasses
import time
import uuid
from collections import Counter
from typing import Self

from confluent_kafka import Message

from contracts.dead_letters.ledger import LEDGER
from contracts.dead_letters.redrive import redrive
from contracts.dead_letters.selection import Selection, Verdict
from contracts.dead_letters.topic import DeadLetterTopic
from contracts.events import DeadLetterSettled
from contracts.records.codec import Codec
from contracts.records.dead_letter_headers import ERRORS, dead_letter_headers
from contracts.servers.provision import create_topics
from contracts.servers.registry import Registry
from contracts.settings import Settings
from tests import sample
from tests.contracts.wire import records_of
from tests.producers import ordered
from tests.sample import topics

DISPATCHED = topics.PARCELS_DISPATCHED.name


class Place:
    """Dispatches under another name; `registry` is the caller's to close."""

    def __init__(self, settings: Settings, registry: Registry, name: str | None = None) -> None:
        whole = sample.catalog()
        contract = whole.topic(DISPATCHED).model_copy(update={"name": name or f"trials.t{uuid.uuid4().hex[:12]}.v1"})
        self.settings, self.registry = settings, registry
        self.topic, self.dead_letter_topic = contract.name, contract.dead_letter_topic
        self.contract = contract
        self.began_ms = int(time.time() * 1000) - 3_600_000
        """Old enough to be told from now; what is older than the topic's retention the broker deletes while a test runs."""
        self.catalog = dataclasses.replace(
            whole,
            topics={contract.name: contract, LEDGER: whole.topic(LEDGER)},
            _schemas={contract.name: whole._schemas[DISPATCHED], LEDGER: whole._schemas[LEDGER]},
        )

    def created(self) -> Self:
        """With its topics on the brokers."""
        create_topics(self.settings, self.catalog)
        return self

    @property
    def letters(self) -> DeadLetterTopic:
        """As the commands see it."""
        return DeadLetterTopic(self.settings.kafka, self.catalog, self.registry, self.topic)

    def send_letters(
        self,
        *values: bytes | None,
        first_offset: int = 0,
        original: list[tuple[str, bytes | None]] | None = None,
        of: str | None = None,
        reason: str | None = None,
    ) -> None:
        """Dead letters of the records at partition 1, `first_offset` and those that follow, of another topic if `of` names it; a stranger's with a
        `reason` of its own length.
        """
        producer = ordered(self.settings.kafka.client_config())
        for offset, value in enumerate(values, first_offset):
            coordinate = f"{of or self.topic}/1/{offset}"
            headers = dead_letter_headers(
                original or [("ce_id", f"id-{offset}".encode())],
                self.topic,
                "dispatches_enriched",
                "S",
                "Trial",
                "an error",
                coordinate,
            )
            if reason is not None:
                headers.append((f"{ERRORS}exception.class.name", reason))
            producer.produce(
                self.dead_letter_topic, value, f"key-{offset}", headers=headers, timestamp=self.began_ms + offset
            )
        assert producer.flush(30) == 0

    def redrive(self, *, again: bool = False, dry_run: bool = False, coordinate: str | None = None) -> Counter[Verdict]:
        """What `headrace dlq redrive` does."""
        selection = Selection(coordinate=coordinate)
        return redrive(self.letters, selection, again=again, dry_run=dry_run, on_letter=lambda letter, verdict: None)

    def records(self) -> list[Message]:
        """What was sent back."""
        return records_of(self.topic, self.settings)

    def entries(self) -> list[DeadLetterSettled]:
        """The ledger's entries about these letters."""
        codec = Codec(self.registry.by_id)
        ours = f"{self.dead_letter_topic}/".encode()
        found = [m.value() for m in records_of(LEDGER, self.settings) if (m.key() or b"").startswith(ours)]
        return [DeadLetterSettled.model_validate(codec.decode(value or b"")) for value in found]

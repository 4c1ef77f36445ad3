"""`DeadLetterTopic`: the dead letters of one contracted topic on some brokers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from contracts.dead_letters.ledger import LEDGER, Ledger
from contracts.dead_letters.letter import DeadLetter
from contracts.dead_letters.log import committed_records, topics_there
from contracts.dead_letters.selection import Home
from contracts.dead_letters.transaction import Settling
from contracts.definitions.catalog import Catalog
from contracts.errors import ConsumeError, SettlementError
from contracts.publisher import Outlet
from contracts.servers.registry import Registry
from contracts.settings import KafkaSettings


class DeadLetterTopic:
    """Reads the letters and their ledger, and settles them. Belongs to no consumer group."""

    def __init__(self, kafka: KafkaSettings, catalog: Catalog, registry: Registry, topic: str) -> None:
        """`topic` is the contracted topic's name or its dead-letter topic's. Raises ContractError if there is no such,
        ConsumeError if the brokers don't answer.
        """
        self.name = catalog.topic(topic.removesuffix(".dlq")).dead_letter_topic
        self.kafka = kafka
        self._catalog = catalog
        self._registry = registry
        self._there = topics_there(kafka)
        self.passed_over: list[str] = []
        """Coordinates of what was no entry when the ledger was read last."""

    def letters(self) -> Iterator[DeadLetter]:
        """Every committed letter that is there now, partition by partition, oldest first. Raises ConsumeError."""
        if self.name not in self._there:
            raise ConsumeError(f"{self.kafka.bootstrap_servers} has no topic {self.name}: run `headrace topics create`")
        for message in committed_records(self.kafka, self.name, self._there[self.name]):
            yield DeadLetter.of(message)

    def ledger(self, *, complete: bool) -> Ledger:
        """See `Ledger.read`; empty if its topic isn't there."""
        schemas, partitions = self._catalog.schemas(LEDGER), self._there.get(LEDGER, 0)
        ledger = Ledger.read(self.kafka, self._registry, schemas, partitions, complete=complete)
        self.passed_over = ledger.passed_over
        return ledger

    def settled_digests(self) -> frozenset[str]:
        """See `Ledger.digests`."""
        return self.ledger(complete=True).digests(self.name)

    def homes(self) -> Mapping[str, Home]:
        """The topics that records may go back to."""
        return {
            contract.name: Home(self._there[contract.name], contract.most_record_bytes)
            for contract in self._catalog.topics.values()
            if contract.name in self._there
        }

    def settling(self) -> Settling:
        """To be entered by whoever settles these letters. Raises SettlementError or RegistryError."""
        if LEDGER not in self._there:
            raise SettlementError(f"{self.kafka.bootstrap_servers} has no topic {LEDGER}: run `headrace topics create`")
        contract = self._catalog.topic(LEDGER)
        ledger = Outlet.of(contract, self._catalog.schema(LEDGER), self._registry, "/headrace/dlq")
        return Settling(self.kafka, ledger, self.name, now=lambda: datetime.now(UTC))

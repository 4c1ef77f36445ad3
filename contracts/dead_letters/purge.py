"""`plan_purge`, `purge`: dead letters are given up, with an entry in the ledger for each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from contracts.dead_letters.letter import DeadLetter
from contracts.dead_letters.topic import DeadLetterTopic
from contracts.errors import SettlementError

_TIMEOUT_SECONDS = 30.0


@dataclass(slots=True)
class PartitionPurge:
    """What goes of one partition: the letters below offset `upto`.

    Kafka deletes a partition from its beginning only, so `behind` letters that were meant too stay, behind `kept`, the
    first letter that was not meant.
    """

    upto: int = 0
    letters: int = 0
    behind: int = 0
    kept: str | None = None


@dataclass(slots=True)
class PurgePlan:
    """What a purge would delete of each partition."""

    partitions: dict[int, PartitionPurge] = field(default_factory=dict)

    @property
    def letters(self) -> int:
        """How many go."""
        return sum(found.letters for found in self.partitions.values())


def plan_purge(topic: DeadLetterTopic, meant: Callable[[DeadLetter], bool]) -> PurgePlan:
    """Find the longest beginning of each partition that holds only letters that are `meant`."""
    plan = PurgePlan()
    for letter in topic.letters():
        found = plan.partitions.setdefault(letter.partition, PartitionPurge())
        if not meant(letter):
            found.kept = found.kept or letter.coordinate
        elif found.kept is not None:
            found.behind += 1
        else:
            found.upto = letter.offset + 1
            found.letters += 1
    return plan


def purge(topic: DeadLetterTopic, plan: PurgePlan) -> int:
    """Write every letter of the plan into the ledger, then delete them; how many were written.

    Killed in between, it can be run again: what is in the ledger is not written twice. Fences whoever is redriving or purging.
    Raises SettlementError, ConsumeError or RegistryError.
    """
    ends = {partition: found.upto for partition, found in plan.partitions.items() if found.letters}
    with topic.settling() as settling:
        ledger = topic.ledger(complete=True)
        for letter in settling.over(topic.letters()):
            if letter.offset < ends.get(letter.partition, 0) and not ledger.is_purged(letter):
                settling.purge(letter)
    _delete(topic, ends)
    return settling.committed


def _delete(topic: DeadLetterTopic, ends: dict[int, int]) -> None:
    admin = AdminClient({**topic.kafka.client_config(), "log_level": 0})
    asked = [TopicPartition(topic.name, partition, upto) for partition, upto in ends.items()]
    try:
        for deleted in admin.delete_records(asked, request_timeout=_TIMEOUT_SECONDS).values() if asked else ():
            deleted.result()
    except KafkaException as error:
        raise SettlementError(
            f"{topic.name}: the ledger says purged, but the brokers did not delete: {error.args[0].str()}; purge again"
        ) from error

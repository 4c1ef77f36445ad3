"""Which dead letters are meant, and which of them may go back: `Selection`, `Verdict`, `judge`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from contracts.dead_letters.ledger import Ledger
from contracts.dead_letters.letter import DeadLetter
from contracts.records.limits import ADDED_BYTES, fits


@dataclass(frozen=True, slots=True)
class Selection:
    """What all of these say; None says nothing. Times are of the record, not of its failure; `until` is excluded.

    `coordinate` is a dead letter's own or its record's.
    """

    reason: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    coordinate: str | None = None

    def takes(self, letter: DeadLetter) -> bool:
        """Whether the letter is meant. One without a time is outside of every range."""
        if self.reason is not None and letter.reason != self.reason:
            return False
        if self.coordinate is not None and self.coordinate not in (letter.coordinate, str(letter.origin)):
            return False
        if self.since is None and self.until is None:
            return True
        at = letter.timestamp
        return at is not None and (self.since is None or at >= self.since) and (self.until is None or at < self.until)


@dataclass(frozen=True, slots=True)
class Home:
    """A topic that records may go back to: its partitions, and the size of its largest record."""

    partitions: int
    most_bytes: int


class Verdict(StrEnum):
    """What a redrive does with a dead letter, in words."""

    REDRIVE = "went back"
    REDRIVEN = "whose record has gone back already"
    PURGED = "given up: a purge of it has begun"
    FAILED_AGAIN = "failed again after a redrive: --again sends it back once more, after another fix"
    NO_RECORD = "never was a record of a topic: mend its producer and let that send it"
    TOO_LONG = "larger than its topic surely takes: mend its producer and let that send it"
    NO_TOPIC = "its topic, or the partition, is not there or has no contract"


def judge(letter: DeadLetter, ledger: Ledger, homes: Mapping[str, Home], *, again: bool) -> Verdict:
    """What is to be done with a letter; `homes` are the topics that a record may go back to."""
    if ledger.is_redriven(letter):
        return Verdict.REDRIVEN
    if ledger.is_purged(letter):
        return Verdict.PURGED
    if letter.origin is None:
        return Verdict.NO_RECORD
    # Headers are anybody's bytes: they must not choose where we write.
    home = homes.get(letter.origin.topic)
    if home is None or letter.origin.partition >= home.partitions:
        return Verdict.NO_TOPIC
    # Every reader takes a record with more headers, too; but this much is what its topic surely takes.
    if not fits(letter.key, letter.value, home.most_bytes) or letter.record_bytes > home.most_bytes + ADDED_BYTES:
        return Verdict.TOO_LONG
    if letter.redriven_from is not None and not again:
        return Verdict.FAILED_AGAIN
    return Verdict.REDRIVE

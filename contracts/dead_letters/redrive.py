"""`redrive`: dead letters go back to where their records came from, each record once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from datetime import UTC, datetime

from contracts.dead_letters.ledger import Ledger, settled
from contracts.dead_letters.letter import DeadLetter
from contracts.dead_letters.selection import Selection, Verdict, judge
from contracts.dead_letters.topic import DeadLetterTopic
from contracts.events import DeadLetterSettled, Settlement

OnLetter = Callable[[DeadLetter, Verdict], None]
"""Told of each letter that was selected."""


def redrive(
    topic: DeadLetterTopic, selection: Selection, *, again: bool, dry_run: bool = False, on_letter: OnLetter
) -> Counter[Verdict]:
    """Send the selected letters that are there now back; how many of them met which verdict.

    Whoever is redriving or purging dead letters is fenced first. What it had committed stands in the ledger,
    which is read after that, so nothing goes back twice however often this is killed and run again. `again` takes
    those along that failed once more after a redrive. Raises SettlementError, ConsumeError or RegistryError.
    """
    if dry_run:
        return _go(topic, topic.letters(), topic.ledger(complete=False), selection, again, on_letter, _pretend)
    with topic.settling() as settling:
        ledger, letters = topic.ledger(complete=True), settling.over(topic.letters())
        return _go(topic, letters, ledger, selection, again, on_letter, settling.redrive)


def _go(
    topic: DeadLetterTopic,
    letters: Iterable[DeadLetter],
    ledger: Ledger,
    selection: Selection,
    again: bool,
    on_letter: OnLetter,
    send: Callable[[DeadLetter], DeadLetterSettled],
) -> Counter[Verdict]:
    homes = topic.homes()
    verdicts: Counter[Verdict] = Counter()
    for letter in filter(selection.takes, letters):
        verdict = judge(letter, ledger, homes, again=again)
        if verdict is Verdict.REDRIVE:
            ledger.add(send(letter))
        verdicts[verdict] += 1
        on_letter(letter, verdict)
    return verdicts


def _pretend(letter: DeadLetter) -> DeadLetterSettled:
    return settled(letter, Settlement.redriven, datetime.now(UTC))

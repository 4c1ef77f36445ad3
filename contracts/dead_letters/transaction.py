"""`Settling`: records that go back and the ledger's entries about them, in one Kafka transaction."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from types import TracebackType
from typing import Any, Self

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from contracts.dead_letters.ledger import settled
from contracts.dead_letters.letter import DeadLetter
from contracts.errors import SettlementError
from contracts.events import DeadLetterSettled, Settlement
from contracts.publisher import Outlet
from contracts.records.dead_letter_headers import REDRIVEN_FROM, Header
from contracts.servers.producer_config import PRODUCER_CONFIG, UNBROKEN_SECONDS, close_producer
from contracts.settings import KafkaSettings

TRANSACTION_LETTERS = 500
OPEN_SECONDS = 5.0
"""Readers of committed records wait behind an open transaction, and the brokers end one after a minute."""
_TIMEOUT_SECONDS = 60.0
_REPORT_SECONDS = 0.5
"""How long after a refusal to wait for the report that says which record it was."""
_FENCED = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)

_TAKEN_ALONG = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)
"""What the client says of records that were not refused themselves, but share a transaction with one that was."""

_CONFIG: dict[str, Any] = {**PRODUCER_CONFIG, "transaction.timeout.ms": int(_TIMEOUT_SECONDS * 1000)}

_log = logging.getLogger(__name__)


class Settling:
    """The one that may settle dead letters from its `with` on, of any topic: one record may have some on several. Whoever did so
    before is fenced, and what it had not committed is aborted.

    It commits every `TRANSACTION_LETTERS` calls, after `OPEN_SECONDS` while letters go by (`over`), and at the end of the `with`,
    unless that ends by an error. Raises SettlementError when somebody else took over, or when the brokers refuse.
    """

    def __init__(
        self, kafka: KafkaSettings, ledger: Outlet, dead_letter_topic: str, *, now: Callable[[], datetime]
    ) -> None:
        self._ledger = ledger
        self._topic = dead_letter_topic
        self._now = now
        self._open = 0
        self._opened = 0.0
        self._refused: dict[int, str] = {}  # by size: of a batch that is refused, the largest record is to blame
        self.committed = 0
        """Calls of `redrive` and `purge` that are in force."""
        # Fixed: with an id of each run's own, a run that was killed would neither be aborted nor kept out.
        config = {"transactional.id": "headrace-dlq", "client.id": "headrace-dlq"}
        self._producer = Producer({**_CONFIG, **kafka.client_config(), **config}, logger=_log)

    def __enter__(self) -> Self:
        # With connections to all brokers up, init_transactions takes milliseconds; without, a timer of half a second.
        for _ in range(2):
            self._run(lambda: self._producer.list_topics(timeout=_TIMEOUT_SECONDS))
        self._run(lambda: self._producer.init_transactions(_TIMEOUT_SECONDS))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self.commit()
            elif self._open:
                self._abort()
        finally:
            close_producer(self._producer)

    def over(self, letters: Iterable[DeadLetter]) -> Iterator[DeadLetter]:
        """These letters. Where most of them are not settled, no transaction is open for long."""
        for letter in letters:
            if self._open and time.monotonic() - self._opened > OPEN_SECONDS:
                self.commit()
            yield letter

    def redrive(self, letter: DeadLetter) -> DeadLetterSettled:
        """Send the letter's record back as it was, to the partition that it came from; the entry that says so."""
        assert letter.origin is not None
        headers: list[Header] = [pair for pair in letter.original_headers() if pair[0] != REDRIVEN_FROM]
        headers.append((REDRIVEN_FROM, letter.coordinate))
        entry = settled(letter, Settlement.redriven, self._now())
        self._begin()
        self._produce(
            letter, letter.origin.topic, letter.value, letter.key, headers, letter.origin.partition, letter.timestamp_ms
        )
        self._settle(letter, entry)
        return entry

    def purge(self, letter: DeadLetter) -> DeadLetterSettled:
        """Say that the letter was given up."""
        entry = settled(letter, Settlement.purged, self._now())
        self._begin()
        self._settle(letter, entry)
        return entry

    def commit(self) -> None:
        """Everything since the last commit, or nothing."""
        if not self._open:
            return
        try:
            self._run(lambda: self._producer.commit_transaction(_TIMEOUT_SECONDS))
        except SettlementError:
            self._abort()
            raise
        self.committed += self._open
        self._open = 0

    def _begin(self) -> None:
        if self._open >= TRANSACTION_LETTERS:
            self.commit()
        if not self._open:
            self._run(self._producer.begin_transaction)
            self._opened = time.monotonic()
        self._open += 1

    def _settle(self, letter: DeadLetter, entry: DeadLetterSettled) -> None:
        key, value, headers = self._ledger.record(entry, f"{entry.action}/{entry.dead_letter}")
        self._produce(letter, self._ledger.contract.name, value, key, headers)

    def _produce(
        self,
        letter: DeadLetter,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: list[Header],
        partition: int = -1,
        timestamp_ms: int | None = None,
    ) -> None:
        def report(error: KafkaError | None, _message: Message) -> None:
            if error is not None and error.code() not in _TAKEN_ALONG:
                self._refused[len(letter.value or b"")] = f"{letter.coordinate} to {topic}: {error.str()}"

        def produce() -> None:
            self._producer.produce(
                topic, value, key, partition, headers=headers, timestamp=timestamp_ms or 0, on_delivery=report
            )

        while True:
            try:
                return self._run(produce)
            except BufferError:
                self._run(lambda: self._producer.poll(UNBROKEN_SECONDS))

    def _run(self, call: Callable[[], object]) -> None:
        """`call`, again while its error passes, up to the transaction's timeout."""
        until = time.monotonic() + _TIMEOUT_SECONDS
        while True:
            try:
                call()
                return
            except KafkaException as failure:
                error: KafkaError = failure.args[0]
                _unless_fenced(failure)
                if not error.retriable() or time.monotonic() > until:
                    try:
                        told = time.monotonic()
                        while time.monotonic() < told + _REPORT_SECONDS:
                            if self._producer.poll(UNBROKEN_SECONDS):
                                told = time.monotonic()
                    except KafkaException as reported:
                        # A call may fail before the client knows, or says, why.
                        _unless_fenced(reported)
                    what = self._refused[max(self._refused)] if self._refused else f"{self._topic}: {error.str()}"
                    raise SettlementError(f"the brokers refuse: {what}; what was committed before holds") from failure

    def _abort(self) -> None:
        self._open = 0
        try:
            self._producer.abort_transaction(_TIMEOUT_SECONDS)
        except KafkaException as failure:
            # Fenced, or no broker: the next one's init_transactions, or the timeout, ends it.
            _log.warning("transaction left to the broker: %s", failure.args[0].str())
            self._producer.purge()


def _unless_fenced(failure: KafkaException) -> None:
    if failure.args[0].code() in _FENCED:
        what = "another redrive or purge began, or this one was held up for longer than a transaction lasts; what it had committed holds"
        raise SettlementError(f"{what}: run it again when no other one runs") from failure

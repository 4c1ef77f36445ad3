"""Records sent by the driver itself, in Kafka transactions of its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import NamedTuple, Self

from confluent_kafka import KafkaError, KafkaException

from contracts.servers.brokers import retried
from contracts.servers.producer_config import close_producer
from spark.runtime.errors import RepairFailed
from spark.sinks.kafka.sink import Route
from spark.sinks.kafka.transaction import (
    HELD_BYTES,
    Headers,
    abort,
    constant_headers,
    produce,
    transactional_producer,
)

_TIMEOUT_SECONDS = 30.0
_TRANSACTION_SECONDS = 15.0
"""An open transaction holds back every reader of committed records, and nobody starts a repair again that was killed."""

_FENCED = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)


class Outgoing(NamedTuple):
    """A derived record: the raw record's coordinate, key, value, and the header `ce_time`."""

    coordinate: str
    key: bytes | None
    value: bytes
    ce_time: str


def transactions(records: Iterable[Outgoing]) -> Iterator[list[Outgoing]]:
    """The records in pieces that are sent within a second; one that is larger is a piece of its own."""
    held: list[Outgoing] = []
    size = 0
    for record in records:
        if held and size + len(record.value) > HELD_BYTES:
            yield held
            held, size = [], 0
        held.append(record)
        size += len(record.value)
    if held:
        yield held


class Emission:
    """The one that may send for its route from its making on: who did so before is fenced, and what it left open is aborted.

    Raises RepairFailed when somebody else took over, or when the brokers refuse; what was committed before holds.
    """

    def __init__(self, kafka: Mapping[str, str], route: Route) -> None:
        self._route = route
        self._constant = constant_headers(route, route.target)
        # One for all partitions, whose number is not asked.
        self._producer = transactional_producer(kafka, route, 0, _TRANSACTION_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        close_producer(self._producer)

    def commit(self, records: Iterable[Outgoing]) -> None:
        """Send all in one transaction; returns when it is committed."""
        try:
            self._producer.begin_transaction()
            for record in records:
                self._produce(record)
            retried(lambda: self._producer.commit_transaction(_TIMEOUT_SECONDS), _TRANSACTION_SECONDS)
        except KafkaException as failure:
            error: KafkaError = failure.args[0]
            abort(self._producer)
            if error.code() in _FENCED:
                raise RepairFailed(
                    "another repair began, which goes on from what this one has committed, or this one was held up for longer than a transaction lasts: then run "
                    "it again"
                ) from failure
            raise RepairFailed(f"the brokers refuse: {error.str()}; run it again, nothing is sent twice") from failure
        except BaseException:
            abort(self._producer)
            raise

    def _produce(self, record: Outgoing) -> None:
        headers: Headers = [("ce_id", record.coordinate), ("ce_time", record.ce_time), *self._constant]
        produce(self._producer, self._route.target, record.value, record.key, headers)

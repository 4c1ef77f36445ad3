"""`Written`: what a reader of committed records has seen of a topic, while an engine still writes it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition

from contracts.records.codec import Codec
from contracts.servers.registry import Registry
from contracts.settings import Settings
from tests.bench.peers.rows import ends
from tests.bench.state.workloads.backlog import Backlog
from tests.bench.state.workloads.workload import Row, Workload

_AT_ONCE = 10_000
_BEGIN = datetime.min.replace(tzinfo=UTC)
_TOLERANCE = 1e-9
"""Relative, of numbers that have a fraction: two engines may round the last digit otherwise."""


class Written:
    """The newest record of each key, since it was made; the topic must be there."""

    def __init__(
        self, settings: Settings, topic: str, workload: Workload, backlog: Backlog, expected: Mapping[str, Row]
    ) -> None:
        self._settings, self._workload, self._backlog, self._expected = settings, workload, backlog, expected
        self._last = max(expected, key=lambda key: workload.reached_by(expected[key]))
        self._consumer = Consumer(
            settings.kafka.client_config()
            | {"group.id": "bench-state", "enable.auto.commit": False, "isolation.level": "read_committed"}
        )
        since = ends(settings, topic)
        self._consumer.assign([TopicPartition(topic, partition, offset) for partition, offset in since.items()])
        self._newest: dict[str, bytes] = {}
        self._reached = _BEGIN
        self._registry = Registry(settings.registry)
        self._codec = Codec(self._registry.by_id)
        self.records = 0
        """All that were seen: with updates more than keys."""

    def events(self) -> int:
        """How many events of the backlog are through, as of now: all of them when every key is there, and the last one is as it must be."""
        self._read(0.0)
        if len(self._newest) >= len(self._expected) and not self._wrong(self._last):
            return self._backlog.size
        return min(self._backlog.before(self._reached), self._backlog.size - 1)

    def differences(self, limit: int = 5) -> list[str]:
        """What is wrong, one line for each of the first keys; none if nothing is. What is still under way is waited for, for ten seconds."""
        for _ in range(20):
            self._read(0.5)
            found = list(self._differences())
            if not found:
                break
        return [*found[:limit], *([f"and {len(found) - limit} more"] if len(found) > limit else [])]

    def close(self) -> None:
        """Read no more."""
        self._consumer.close()
        self._registry.close()

    def _read(self, wait_seconds: float) -> None:
        while messages := self._consumer.consume(_AT_ONCE, timeout=wait_seconds or 0.05):
            for message in messages:
                if (error := message.error()) is not None:
                    if error.code() == KafkaError._PARTITION_EOF:
                        continue
                    raise RuntimeError(f"what was written can't be read: {error}")
                key = _text(message.key())
                if key not in self._newest and (row := self._expected.get(key)) is not None:
                    self._reached = max(self._reached, self._workload.reached_by(row))
                self._newest[key] = bytes(message.value() or b"")
                self.records += 1
            if len(messages) < _AT_ONCE and not wait_seconds:
                return

    def _differences(self) -> Iterator[str]:
        for key in self._expected:
            if wrong := self._wrong(key):
                yield f"{key}: {wrong}"
        for key in self._newest.keys() - self._expected.keys():
            yield f"{key}: it should not be there"
        if not self._workload.updates and self.records != len(self._newest):
            yield f"{self.records} records of {len(self._newest)} keys, each of which is to be written once"

    def _wrong(self, key: str) -> str:
        """What is wrong with the newest record of a key that must be there; empty if nothing is."""
        body = self._newest.get(key)
        return "missing" if body is None else wrong_fields(self._expected[key], self._codec.decode(body))


def wrong_fields(expected: Row, written: Mapping[str, Any]) -> str:
    """The fields that differ, in words; empty if none does. Only those that are expected are compared."""
    return ", ".join(
        f"{name} is {written.get(name)!r}, not {right!r}"
        for name, right in expected.items()
        if not _is_same(right, written.get(name))
    )


def _is_same(right: object, found: object) -> bool:
    if isinstance(right, float) and isinstance(found, float):
        return math.isclose(right, found, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE)
    return right == found


def _text(key: str | bytes | None) -> str:
    return key if isinstance(key, str) else (key or b"").decode()

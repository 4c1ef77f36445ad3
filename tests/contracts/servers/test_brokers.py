"""Which answers of brokers are worth waiting for."""

from __future__ import annotations

import time
from contextlib import closing

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException

from contracts.servers import brokers
from contracts.servers.brokers import retried


class Answers:
    """Raises these errors one after the other, then answers."""

    def __init__(self, *codes: int) -> None:
        self._codes = list(codes)
        self.asked = 0

    def __call__(self) -> str:
        self.asked += 1
        if self._codes:
            raise KafkaException(KafkaError(self._codes.pop(0)))
        return "an answer"


def test_a_leader_or_coordinator_that_moves_is_waited_for() -> None:
    ask = Answers(
        KafkaError.LEADER_NOT_AVAILABLE, KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.COORDINATOR_LOAD_IN_PROGRESS
    )
    assert retried(ask, 30) == "an answer"
    assert ask.asked == 4


def test_but_not_for_longer_than_is_said() -> None:
    with pytest.raises(KafkaException, match="leader"):
        retried(Answers(*[KafkaError.NOT_LEADER_FOR_PARTITION] * 100), 0.3)


def test_any_other_refusal_is_told_at_once() -> None:
    ask = Answers(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(KafkaException, match="authorization"):
        retried(ask, 30)
    assert ask.asked == 1


def test_the_more_partitions_are_away_the_less_each_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []

    def away(consumer: Consumer, topic: str, partition: int, seconds: float) -> tuple[int, int]:
        asked.append(seconds)
        now[0] += seconds
        if partition == 3:
            return 0, 7
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(brokers, "watermarks", away)
    with closing(Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "tests", "log_level": 0})) as nowhere:
        ends, untold = brokers.ends_of(nowhere, "t", range(4), 5.0)
    assert (ends, {*untold}) == ({3: 7}, {0, 1, 2})
    assert asked == [5.0, 0.5, 0.5, 0.5]

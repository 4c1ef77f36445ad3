"""Which answers of brokers are worth waiting for."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

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

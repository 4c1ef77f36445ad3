"""How many records topics hold that are written in transactions, whose markers are offsets but no records."""

from __future__ import annotations

import time
from collections.abc import Sequence

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from contracts.settings import KafkaSettings

_AT_ONCE = 10_000
_PAUSE_SECONDS = 0.05
_BUDGET_SECONDS = 5.0


class RecordCounts:
    """Counts by reading, each record once; a long backlog is counted over several calls."""

    def __init__(self, kafka: KafkaSettings, topics: Sequence[str]) -> None:
        """`topics` that don't exist yet are counted when they do."""
        self._topics = topics
        self._counts = dict.fromkeys(topics, 0)
        self._known: list[TopicPartition] = []
        self.ends: dict[TopicPartition, int] = {}
        """Of each partition read, the offset after its last record; markers may follow."""
        self._consumer = Consumer(
            {
                **kafka.client_config(),
                "group.id": "headrace-view",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "queued.max.messages.kbytes": 4096,
                "log_level": 0,
            }
        )

    def close(self) -> None:
        """Close the connection."""
        self._consumer.close()

    def read(self, partitions: Sequence[TopicPartition]) -> dict[str, int]:
        """Records of each topic so far; `partitions` are those that there are now."""
        new = [each for each in partitions if each.topic in self._counts and each not in self._known]
        if new:
            self._known += new
            self._consumer.incremental_assign([TopicPartition(p.topic, p.partition, OFFSET_BEGINNING) for p in new])
        # A first count that broke off early would show as so many events per second.
        left = {(each.topic, each.partition) for each in new}
        until = time.monotonic() + _BUDGET_SECONDS
        while self._known and time.monotonic() < until:
            messages = self._consumer.consume(_AT_ONCE, timeout=_PAUSE_SECONDS)
            for message in messages:
                topic, partition, error = str(message.topic()), message.partition() or 0, message.error()
                if error is None:
                    self._counts[topic] += 1
                    self.ends[TopicPartition(topic, partition)] = (message.offset() or 0) + 1
                elif error.code() == KafkaError._PARTITION_EOF:
                    left.discard((topic, partition))
            if not messages and not left:
                break
        return dict(self._counts)

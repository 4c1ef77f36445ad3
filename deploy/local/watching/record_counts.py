"""How many records topics hold that are written in transactions, whose markers are offsets but no records."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from contracts.settings import KafkaSettings

_AT_ONCE = 10_000
_PAUSE_SECONDS = 0.05
_BUDGET_SECONDS = 5.0


@dataclass
class _Count:
    """Of one partition: records read, the offset after the last of them, and the last end that was met."""

    records: int = 0
    after: int = 0
    end: int = 0

    def reaches(self, end: int) -> bool:
        return max(self.after, self.end) >= end


class RecordCounts:
    """Counts by reading, each record once; a long backlog is counted over several calls."""

    def __init__(
        self, kafka: KafkaSettings, topics: Collection[str], *, budget_seconds: float = _BUDGET_SECONDS
    ) -> None:
        """`topics` that don't exist yet are counted when they do. One call of `read` takes `budget_seconds` at most."""
        self._topics = topics
        self._budget_seconds = budget_seconds
        self._counts: dict[TopicPartition, _Count] = {}
        self._consumer = Consumer(
            {
                **kafka.client_config(),
                "group.id": "headrace-view",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",  # where retention deletes what is to be read
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "queued.max.messages.kbytes": 4096,
                "log_level": 0,
            }
        )

    def close(self) -> None:
        """Close the connection."""
        self._consumer.close()

    def read(self, ends: Mapping[TopicPartition, int]) -> None:
        """Count up to `ends`, the last stable offsets of the partitions that there are; what lies beyond is for the next call."""
        ends = {each: end for each, end in ends.items() if each.topic in self._topics}
        made_anew = [
            each for each, count in self._counts.items() if each in ends and ends[each] < max(count.after, count.end)
        ]
        if made_anew:
            self._consumer.incremental_unassign(made_anew)
        new = made_anew + [each for each in ends if each not in self._counts]
        if new:
            self._consumer.incremental_assign([TopicPartition(p.topic, p.partition, OFFSET_BEGINNING) for p in new])
            self._counts |= {each: _Count() for each in new}
        until = time.monotonic() + self._budget_seconds
        while time.monotonic() < until and not all(self._counts[each].reaches(end) for each, end in ends.items()):
            for message in self._consumer.consume(_AT_ONCE, timeout=_PAUSE_SECONDS):
                offset, error = message.offset() or 0, message.error()
                count = self._counts.get(TopicPartition(str(message.topic()), message.partition() or 0))
                if count is None:
                    continue  # an error that is of no partition: the next look says what is wrong
                if error is None:
                    count.records, count.after = count.records + 1, offset + 1
                elif error.code() == KafkaError._PARTITION_EOF:
                    count.end = offset

    def totals(self, ends: Mapping[TopicPartition, int]) -> dict[str, int | None]:
        """Records of each topic; None while some before `ends` are not counted yet."""
        totals: dict[str, int | None] = dict.fromkeys(self._topics, 0)
        for each, end in ends.items():
            total = totals.get(each.topic)
            if total is not None:
                count = self._counts[each]
                totals[each.topic] = total + count.records if count.reaches(end) else None
        return totals

    def without_markers(self, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """`ends`, but the offset after the last record where markers follow it and all before is counted."""
        counts = {each: self._counts.get(each, _Count()) for each in ends}
        return {each: counts[each].after if counts[each].reaches(end) else end for each, end in ends.items()}

"""`python -m tests.spark.queries.repairer SOURCE TARGET`: send two transactions of two records, and die with a third one open."""

from __future__ import annotations

import os
import signal
import sys
import time

from confluent_kafka import Consumer, TopicPartition

from contracts.settings import Settings, read_settings
from spark.sinks.kafka.emission import Emission, Outgoing
from spark.sinks.kafka.sink import Route

_ON_THE_BROKER = 7
"""Five records and the end markers of two transactions."""


class _Deadly(Outgoing):
    """A record whose sending kills the process once those before it are on the broker."""

    @property
    def ce_time(self) -> str:
        kafka = read_settings(Settings).kafka.client_config()
        asker = Consumer({**kafka, "group.id": "tests", "isolation.level": "read_uncommitted"})
        until = time.monotonic() + 30
        while asker.get_watermark_offsets(TopicPartition(sys.argv[2], 0), timeout=10)[1] < _ON_THE_BROKER:
            assert time.monotonic() < until, "waited for the fifth record to arrive"
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("alive")


def main() -> None:
    source, target = sys.argv[1:]
    records = [Outgoing("a/0/0", b"to partition 0", str(number).encode(), "") for number in range(5)]
    with Emission(
        read_settings(Settings).kafka.client_config(),
        Route("repair/dispatches_enriched", source, target, f"{target}.dlq"),
    ) as it:
        it.commit(records[:2])
        it.commit(records[2:4])
        it.commit([records[4], _Deadly("a/0/0", b"", b"never", "")])


if __name__ == "__main__":
    main()

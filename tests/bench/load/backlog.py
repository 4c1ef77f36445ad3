"""A backlog of real events in the raw topic, as fast as one process can fill it.

`python -m tests.bench.load.backlog 1000000`: records of the data set, again and again, for the
stack that the environment's `HEADRACE_` variables name.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Iterable, Sequence

from confluent_kafka import Producer

from contracts.servers.producer_config import PRODUCER_CONFIG
from contracts.settings import Settings, read_settings
from tests.bench.load.records import RAW, Record, raw_records


def fill(settings: Settings, count: int) -> None:
    """Publish `count` events and wait until the broker has them all."""
    publish(settings, RAW, raw_records(settings, count), count)


def publish(settings: Settings, topic: str, records: Iterable[Record], count: int) -> None:
    """Publish `count` records, `records` again and again if they are a sequence, and wait until the broker has them all."""
    producer = Producer(
        settings.kafka.client_config()
        | {
            **PRODUCER_CONFIG,
            "linger.ms": 20,
            "batch.size": 1 << 20,
            "queue.buffering.max.messages": 500_000,
        }
    )
    again = itertools.cycle(records) if isinstance(records, Sequence) else records
    for number, (key, value, headers) in enumerate(itertools.islice(again, count)):
        while True:
            try:
                producer.produce(topic, key=key, value=value, headers=headers)
                break
            except BufferError:
                producer.poll(0.1)
        if number % 10_000 == 0:
            producer.poll(0)
    if producer.flush(120):
        raise TimeoutError(f"the broker did not take all of {count} records in 120 s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int)
    arguments = parser.parse_args()
    began = time.monotonic()
    fill(read_settings(Settings), arguments.count)
    print(f"{arguments.count} events in {time.monotonic() - began:.1f} s")

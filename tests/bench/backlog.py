"""Fills the raw topic with a backlog of real departures, as fast as one process can.

`python -m tests.bench.backlog 1000000`: records of every departed flight of the data set, again and again, for the
stack that the environment's `HEADRACE_` variables name.
"""

from __future__ import annotations

import argparse
import io
import itertools
import json
import time
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import fastavro
from confluent_kafka import Producer

from contracts import topics
from contracts.catalog import load_catalog
from contracts.events import FlightDeparted
from contracts.registry import Registry
from contracts.settings import Settings, read_settings
from services.departures.event import event_of
from services.replay.table import read_table

TOPIC = topics.FLIGHTS_DEPARTED.name

Header: TypeAlias = tuple[str, str | bytes | None]
Record: TypeAlias = tuple[bytes, bytes, list[Header]]
"""Key, value and headers."""


def departures(schema_id: int) -> Iterator[tuple[bytes, bytes, bytes]]:
    """Key, value and ce_time of every departed flight."""
    schema = fastavro.parse_schema(json.loads(load_catalog().schema(TOPIC)))
    prefix = b"\x00" + schema_id.to_bytes(4, "big")
    for row in read_table("flights"):
        event = event_of(row)
        if isinstance(event, FlightDeparted):
            body = io.BytesIO()
            body.write(prefix)
            fastavro.schemaless_writer(body, schema, event.model_dump())
            yield event.flight_id.encode(), body.getvalue(), event.departed_at.isoformat().encode()


def fill(settings: Settings, count: int) -> None:
    """Publish `count` departures and wait until the broker has them all."""
    with Registry(settings.registry) as registry:
        schema_id = registry.latest(f"{TOPIC}-value").id
    constant = constant_headers(TOPIC, "/services/departures")
    year = [
        (key, value, [("ce_id", key), ("ce_time", occurred_at), *constant])
        for key, value, occurred_at in itertools.islice(departures(schema_id), count)
    ]
    publish(settings, TOPIC, year, count)


def constant_headers(topic: str, source: str) -> list[Header]:
    """The headers that all records of a topic have in common."""
    return [
        ("ce_type", topic.encode()),
        ("ce_source", source.encode()),
        ("ce_specversion", b"1.0"),
        ("content-type", b"application/avro"),
    ]


def publish(settings: Settings, topic: str, records: Sequence[Record], count: int) -> None:
    """Publish `count` records, `records` again and again, and wait until the broker has them all."""
    producer = Producer(
        settings.kafka.client_config()
        | {
            "enable.idempotence": True,
            "linger.ms": 20,
            "batch.size": 1 << 20,
            "compression.type": "lz4",
            "partitioner": "murmur2_random",
            "queue.buffering.max.messages": 500_000,
        }
    )
    for number, (key, value, headers) in enumerate(itertools.islice(itertools.cycle(records), count)):
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
    print(f"{arguments.count} departures in {time.monotonic() - began:.1f} s")

"""All departures of 2013 on a topic, or other events, and how far a pipeline has come with them."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from itertools import islice
from operator import itemgetter
from typing import Any

import fastavro

from spark.derivation.derivation import route
from spark.pipeline import Pipeline
from spark.runtime.settings import SparkSettings
from spark.sinks.kafka.transaction import committed_positions, position_reader
from tests.spark.examples import Topics, framed
from tests.system.oracle import enriched_flights

DEPARTED = "flights.departed.v1"

Event = Mapping[str, Any]


def all_flights() -> list[Event]:
    """In the order in which they left."""
    return sorted(enriched_flights().values(), key=itemgetter("departed_at", "flight_id"))


def send(topics: Topics, events: Sequence[Event], name: str = DEPARTED) -> None:
    """In turn to the two partitions of a topic, what its schema has of each."""
    told = json.loads(topics.catalog.schema(name))
    schema, fields = fastavro.parse_schema(told), [field["name"] for field in told["fields"]]
    for partition in (0, 1):
        values = []
        for event in events[partition::2]:
            body = io.BytesIO()
            fastavro.schemaless_writer(body, schema, {field: event[field] for field in fields})
            values.append(framed(topics.schema_ids[name], body.getvalue()))
        for chunk in _chunks(values):
            topics.send(*chunk, partition=partition, topic=name)


def taken_in(pipeline: Pipeline, settings: SparkSettings, topics: Topics) -> int:
    """How many records the pipeline's group has, of all that it reads."""
    found = 0
    for source in pipeline.sources:
        made = route(pipeline, topics.catalog, source)
        with closing(position_reader(settings.kafka.client_config(), made)) as reader:
            found += sum(at.offset for at in committed_positions(reader, made.source, [0, 1]).values())
    return found


def _chunks(values: Sequence[bytes]) -> Iterator[tuple[bytes, ...]]:
    left = iter(values)
    while chunk := tuple(islice(left, 50_000)):
        yield chunk

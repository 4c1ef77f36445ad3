"""All departures of 2013 on a topic, and how far a pipeline has come with them."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from operator import itemgetter
from typing import Any

import fastavro

from spark.derivation.derivation import route
from spark.pipeline import Pipeline
from spark.runtime.settings import SparkSettings
from spark.sinks.kafka.transaction import committed_positions, position_reader
from tests.spark.examples import Topics, framed
from tests.spark.pipelines.test_pipelines import a_departure
from tests.system.oracle import enriched_flights

DEPARTED = "flights.departed.v1"

Flight = Mapping[str, Any]


def all_flights() -> list[Flight]:
    """In the order in which they left."""
    return sorted(enriched_flights().values(), key=itemgetter("departed_at", "flight_id"))


def send(topics: Topics, flights: Sequence[Flight]) -> None:
    """In turn to the two partitions of the departures' topic."""
    schema = fastavro.parse_schema(json.loads(topics.catalog.schema(DEPARTED)))
    names = a_departure().keys()
    for partition in (0, 1):
        values = []
        for flight in flights[partition::2]:
            body = io.BytesIO()
            fastavro.schemaless_writer(body, schema, {name: flight[name] for name in names})
            values.append(framed(topics.schema_ids[DEPARTED], body.getvalue()))
        for chunk in _chunks(values):
            topics.send(*chunk, partition=partition, topic=DEPARTED)


def taken_in(pipeline: Pipeline, settings: SparkSettings, topics: Topics) -> int:
    """How many departures the pipeline's group has."""
    made = route(pipeline, topics.catalog)
    reader = position_reader(settings.kafka.client_config(), made)
    try:
        return sum(at.offset for at in committed_positions(reader, made.source, [0, 1]).values())
    finally:
        reader.close()


def _chunks(values: Sequence[bytes]) -> Iterator[tuple[bytes, ...]]:
    left = iter(values)
    while chunk := tuple(islice(left, 50_000)):
        yield chunk

"""The enrichment as a user of Quix Streams writes it: a streaming dataframe, `apply` with dictionaries.

`python -m tests.bench.peers.programs.quix_dataframe TASK`, in Quix' own environment.

Which settings, and who advises them:

* One process for each partition, in one consumer group: a Python process has one core. Quix' documentation, "Introduction", has
  applications scale by more containers.
* Avro by the registry's serializers: Quix' documentation, "Schema Registry". Headers are carried on unasked: "Processing", "Timestamps and
  Headers of Produced Messages".
* Small static dimensions as dictionaries, in `apply`: they need no state store.
* `commit_interval` of one second: with exactly-once it is "the maximum amount of time before a produced message can be read"
  ("Configuration", "Exactly-Once producer buffering"); the same with at-least-once, as Flink has its checkpoints.
* For a backlog `linger.ms`, `batch.size`, `compression.type` of the producer: as `live` has them.
* For low latency `linger.ms` 0 and `fetch.queue.backoff.ms` 1: librdkafka's "Introduction", "Low latency", and its list of properties.
"""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Callable
from typing import Any

from quixstreams import Application
from quixstreams.models import SchemaRegistryClientConfig
from quixstreams.models.serializers.avro import AvroDeserializer, AvroSerializer

from tests.bench.peers.programs.task import Task, dimension_rows, read_task

PROCESSES = 2

_NOTHING: dict[str, Any] = {}


def main() -> None:
    """Enrich until stopped."""
    processes = [multiprocessing.Process(target=run, args=(read_task(),)) for _ in range(PROCESSES)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()


def run(task: Task) -> None:
    """One instance of the application."""
    registry = SchemaRegistryClientConfig(url=task.registry)
    application = Application(
        broker_address=task.brokers,
        consumer_group=task.group,
        auto_offset_reset="earliest",
        processing_guarantee="exactly-once" if task.exactly_once else "at-least-once",
        commit_interval=1.0,
        state_dir=task.work,
        consumer_extra_config={"fetch.queue.backoff.ms": 1} if task.low_latency else {},
        producer_extra_config={
            "compression.type": "lz4",
            "batch.size": 256 << 10,
            "linger.ms": 0 if task.low_latency else 5,
        },
        auto_create_topics=False,
    )
    departed = application.topic(
        task.source, value_deserializer=AvroDeserializer(schema_registry_client_config=registry)
    )
    enriched = application.topic(
        task.target,
        value_serializer=AvroSerializer(schema=json.loads(task.target_schema), schema_registry_client_config=registry),
    )
    application.dataframe(departed).apply(_enrich(task)).to_topic(enriched)
    application.run()


def _enrich(task: Task) -> Callable[[dict[str, Any]], dict[str, Any]]:
    airlines = dimension_rows(task, "airlines", "carrier")
    airports = dimension_rows(task, "airports", "airport")
    planes = dimension_rows(task, "planes", "tail_number")

    def enrich(departure: dict[str, Any]) -> dict[str, Any]:
        airline = airlines.get(departure["carrier"], _NOTHING)
        origin = airports.get(departure["origin"], _NOTHING)
        destination = airports.get(departure["destination"], _NOTHING)
        plane = planes.get(departure["tail_number"], _NOTHING)
        return {
            **departure,
            "airline_name": airline.get("name"),
            "origin_name": origin.get("name"),
            "origin_timezone": origin.get("timezone"),
            "destination_name": destination.get("name"),
            "destination_timezone": destination.get("timezone"),
            "destination_latitude_degrees": destination.get("latitude_degrees"),
            "destination_longitude_degrees": destination.get("longitude_degrees"),
            "destination_altitude_feet": destination.get("altitude_feet"),
            "plane_built_year": plane.get("built_year"),
            "plane_manufacturer": plane.get("manufacturer"),
            "plane_model": plane.get("model"),
            "plane_engines": plane.get("engines"),
            "plane_seats": plane.get("seats"),
            "plane_engine_type": plane.get("engine_type"),
        }

    return enrich


if __name__ == "__main__":
    main()

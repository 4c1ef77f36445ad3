"""The live enrichment as a running query, and what it wrote, read back from Kafka."""

from __future__ import annotations

import dataclasses
import io
import json
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import fastavro
import pyarrow as pa
from confluent_kafka import Message
from deltalake import write_deltalake
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from contracts.definitions.catalog import Catalog
from contracts.definitions.dimension import DimensionContract
from contracts.servers.registry import Registry
from contracts.servers.s3 import s3_client
from spark.derivation.derivation import route
from spark.pipeline import Pipeline
from spark.queries.live import Live
from spark.runtime.lifecycle import Lifecycle
from spark.runtime.settings import SparkSettings
from spark.sinks.kafka.at_least_once import AtLeastOnceSink
from spark.sinks.kafka.exactly_once import ExactlyOnceSink
from spark.sinks.kafka.sink import Sink
from tests.sample.pipelines.dispatches_enriched import dispatches_enriched
from tests.spark.examples import ENRICHED, Topics, framed
from tests.spark.lookups.test_enrich import ROWS

Rows = Mapping[str, Sequence[tuple[Any, ...]]]
"""Of each dimension."""
_TYPES = {
    "string": pa.string(),
    "int": pa.int32(),
    "long": pa.int64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
}


def moved(catalog: Catalog, place: str) -> dict[str, DimensionContract]:
    """The dimensions at another place in the bucket."""
    return {
        name: dimension.model_copy(update={"location": f"{place}/{name}"})
        for name, dimension in catalog.dimensions.items()
    }


class Dimensions:
    """The dimensions as Delta tables at a place of their own, with these rows; without, those of the parcels."""

    def __init__(self, settings: SparkSettings, catalog: Catalog, rows: Rows = ROWS) -> None:
        self._s3 = settings.s3
        self.place = f"test-dimensions/{uuid.uuid4().hex[:8]}"
        self.contracts = moved(catalog, self.place)
        for name, of_one in rows.items():
            self.publish(name, *of_one)

    def publish(self, name: str, *rows: tuple[Any, ...]) -> None:
        """As the dimensions service does."""
        contract = self.contracts[name]
        schema = pa.schema([(column.name, _TYPES[column.type]) for column in contract.columns])
        table = pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)
        uri = f"s3://{self._s3.bucket}/{contract.location}"
        write_deltalake(uri, table, mode="overwrite", schema_mode="overwrite", storage_options=self._s3.delta_options())

    def remove(self, *names: str) -> None:
        """All of the tables or of these, log and files."""
        s3 = s3_client(self._s3)
        for name in names or self.contracts:
            found = s3.list_objects_v2(Bucket=self._s3.bucket, Prefix=f"{self.contracts[name].location}/")
            for each in found.get("Contents", []):
                s3.delete_object(Bucket=self._s3.bucket, Key=each["Key"])


@contextmanager
def running(
    spark: SparkSession,
    settings: SparkSettings,
    registry: Registry,
    catalog: Catalog,
    dimensions: Dimensions,
    pipeline: Pipeline = dispatches_enriched,
    **live: object,
) -> Iterator[StreamingQuery]:
    """A pipeline's query over the catalog's topics; `live` are fields of LiveSettings."""
    own = dataclasses.replace(catalog, dimensions=dimensions.contracts)
    chosen = settings.live.model_copy(update=live)
    sink: Sink
    if chosen.mode == "exactly-once":
        sink = ExactlyOnceSink(settings.kafka, route(pipeline, own), chosen)
    else:
        sink = AtLeastOnceSink(settings.kafka, route(pipeline, own), chosen, lookups=pipeline.lookups)
    lifecycle = Lifecycle()
    of_query = settings.model_copy(update={"live": chosen})
    query = Live(spark, pipeline, of_query, own, registry, sink, lifecycle).start()
    assert query is not None
    try:
        yield query
    finally:
        lifecycle.stopping.set()
        query.stop()


def events(topics: Topics, name: str = ENRICHED) -> list[tuple[dict[str, Any], dict[str, Any], Message]]:
    """Event, headers and record of everything in a topic, named as in the contracts."""
    schema = fastavro.parse_schema(json.loads(topics.catalog.schema(name)))
    prefix = framed(topics.schema_ids[name], b"")
    found = []
    for message in topics.read(topics.catalog.topic(name).name):
        value = message.value()
        assert isinstance(value, bytes)
        assert value.startswith(prefix)
        event = fastavro.schemaless_reader(io.BytesIO(value[5:]), schema, None)
        assert isinstance(event, dict)
        found.append((event, dict(message.headers() or []), message))
    return found


def parcels(topics: Topics) -> list[str]:
    """Those in the enriched topic."""
    return [event["parcel_id"] for event, _, _ in events(topics)]


def wait_for(what: str, holds: Callable[..., bool], seconds: float = 240, every: float = 0.05) -> None:
    """Until `holds`, which is asked so often; fails with `what` otherwise."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"waited {seconds:g} s for {what}"
        time.sleep(every)

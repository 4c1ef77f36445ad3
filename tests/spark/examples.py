"""Valid dispatches and their records, with one visible override; topics of a test's own."""

from __future__ import annotations

import dataclasses
import io
import json
import uuid
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime
from typing import Any, Self

import fastavro
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.sql import DataFrame, SparkSession

from contracts.definitions.catalog import Catalog
from contracts.definitions.topic import Derivation, TopicContract
from contracts.records.limits import DEAD_LETTER_BYTES, batch_limit
from contracts.servers.brokers import retried
from contracts.servers.registry import Registry
from spark.runtime.settings import SparkSettings
from tests import sample
from tests.administered import add_partitions
from tests.producers import ordered
from tests.sample import topics

DISPATCHED = topics.PARCELS_DISPATCHED.name
DELIVERED = topics.PARCELS_DELIVERED.name
LOST = topics.PARCELS_LOST.name
ENRICHED = topics.PARCELS_DISPATCHED_ENRICHED.name
SCHEMA: str = sample.catalog().schema(DISPATCHED)

RAW = """key binary, value binary, topic string, partition int, offset long, timestamp timestamp,
headers array<struct<key: string, value: binary>>"""
"""The columns of Spark's Kafka source that `decode` reads."""


def a_dispatch(**overrides: Any) -> dict[str, Any]:
    """The fields of parcels.dispatched.v1."""
    return {
        "parcel_id": "UA1545-EST-20130101T1015Z",
        "courier": "UA",
        "parcel_number": 1545,
        "van_id": "N14228",
        "origin": "EST",
        "destination": "IAH",
        "posted_on": date(2013, 1, 1),
        "due_at": datetime(2013, 1, 1, 10, 15, tzinfo=UTC),
        "dispatched_at": datetime(2013, 1, 1, 10, 17, tzinfo=UTC),
        "late_minutes": 2,
        "weight_grams": 1400,
    } | overrides


def a_delivery(**overrides: Any) -> dict[str, Any]:
    """The fields of parcels.delivered.v1."""
    dispatch = a_dispatch()
    shared = {name: dispatch[name] for name in dispatch if name not in ("dispatched_at", "late_minutes")}
    return {
        **shared,
        "expected_at": datetime(2013, 1, 1, 14, 19, tzinfo=UTC),
        "delivered_at": datetime(2013, 1, 1, 14, 30, tzinfo=UTC),
        "delivered_late_minutes": 11,
        "on_road_minutes": 227,
    } | overrides


def a_loss(**overrides: Any) -> dict[str, Any]:
    """The fields of parcels.lost.v1."""
    dispatch = a_dispatch()
    return {name: dispatch[name] for name in dispatch if name not in ("dispatched_at", "late_minutes")} | overrides


def body(event: dict[str, Any], schema: str = SCHEMA) -> bytes:
    """The Avro body of an event."""
    written = io.BytesIO()
    fastavro.schemaless_writer(written, fastavro.parse_schema(json.loads(schema)), event)
    return written.getvalue()


def framed(schema_id: int, avro: bytes) -> bytes:
    """A body in the Confluent wire format."""
    return b"\x00" + schema_id.to_bytes(4, "big") + avro


def schema_with(*fields: dict[str, Any], without: Sequence[str] = (), base: str = SCHEMA) -> str:
    """parcels.dispatched.v1's schema, or `base`, with other fields: those of the same name replaced, the rest added."""
    schema = json.loads(base)
    changed = {field["name"]: field for field in fields}
    schema["fields"] = [changed.pop(field["name"], field) for field in schema["fields"] if field["name"] not in without]
    schema["fields"] += changed.values()
    return json.dumps(schema)


def raw_frame(spark: SparkSession, *values: bytes | None) -> DataFrame:
    """Records with these values as Spark's Kafka source gives them, at offsets 0, 1, …, each keyed `key`."""
    headers = [("ce_id", bytearray(b"the-producer's-own"))]
    rows = [
        (
            bytearray(b"key"),
            value and bytearray(value),
            DISPATCHED,
            0,
            offset,
            datetime(2026, 1, 1, tzinfo=UTC),
            headers,
        )
        for offset, value in enumerate(values)
    ]
    return spark.createDataFrame(rows, RAW)


class Topics:
    """Contracted topics under names of their own, so that tests don't see each other's records."""

    def __init__(
        self,
        settings: SparkSettings,
        catalog: Catalog,
        registry: Registry,
        tag: str = "",
        names: Sequence[str] = (DISPATCHED, ENRICHED),
        partitions: int = 2,
    ) -> None:
        """`tag` begins their names; of those that another process has made. `names` are those of the contracts."""
        self.tag = tag or f"t{uuid.uuid4().hex[:8]}"
        self._kafka = settings.kafka
        self._partitions = partitions
        self._admin = AdminClient({**settings.kafka.client_config()})
        own = renamed(catalog, self.tag, names)
        self.catalog = dataclasses.replace(catalog, topics=own)
        self._own = {**catalog.topics, **own}
        self.schema_ids = {name: registry.register(topic.subject, catalog.schema(name)) for name, topic in own.items()}
        limits = {topic.name: topic.most_record_bytes for topic in own.values()}
        limits |= {topic.dead_letter_topic: DEAD_LETTER_BYTES for topic in own.values()}
        limits |= {topic.late_topic: DEAD_LETTER_BYTES for topic in own.values() if topic.late_topic is not None}
        self.names = list(limits)
        # Records of tests may be as old as they like.
        self._config = {
            name: {"max.message.bytes": str(batch_limit(limit)), "retention.ms": "-1"} for name, limit in limits.items()
        }

    @property
    def dispatched(self) -> TopicContract:
        """The test's own, or the contracts'."""
        return self._own[DISPATCHED]

    @property
    def enriched(self) -> TopicContract:
        """The test's own, or the contracts'."""
        return self._own[ENRICHED]

    def __enter__(self) -> Self:
        self._create(self.names)
        return self

    def __exit__(self, *_: object) -> None:
        for future in self._admin.delete_topics(self.names).values():
            future.result()

    def add_field(self, registry: Registry, topic: str = DISPATCHED) -> None:
        """A new version of the topic's schema, registered and in the contract, which the next start reads by."""
        field = {"name": "gate", "type": ["null", "string"], "default": None, "doc": "Gate."}
        newer = schema_with(field, base=self.catalog.schema(topic))
        registry.register(self.catalog.topic(topic).subject, newer)
        schemas = {**self.catalog._schemas, topic: (*self.catalog.schemas(topic), newer)}
        self.catalog = dataclasses.replace(self.catalog, _schemas=schemas)

    def add_partitions(self, count: int, topic: str = DISPATCHED) -> None:
        """Give a topic, named as in the contracts, this many."""
        add_partitions(self._admin, self.catalog.topic(topic).name, count)

    def make_anew(self, name: str) -> None:
        """Delete a topic and create it again, with the same partitions."""
        for future in self._admin.delete_topics([name], operation_timeout=30).values():
            future.result()
        retried(lambda: self._create([name]), 30)

    def _create(self, names: Sequence[str]) -> None:
        lists = {each.name for each in self.catalog.topics.values() if each.is_ranking}
        made = [
            NewTopic(name, num_partitions=1 if name in lists else self._partitions, config=self._config[name])
            for name in names
        ]
        for future in self._admin.create_topics(made).values():
            future.result()

    def send(
        self,
        *values: bytes | None,
        partition: int = 0,
        headers: Sequence[tuple[str, bytes | None]] = (),
        key: bytes = b"key",
        topic: str = DISPATCHED,
        sent_ms: int = 0,
    ) -> None:
        """Append records to a topic, named as in the contracts; sent now, or at this time."""
        # In one request, so that a batch has all of them or none; `flush` waits for no linger.
        producer = ordered({**self._kafka.client_config(), "linger.ms": 1_000})
        for value in values:
            name = self.catalog.topic(topic).name
            producer.produce(name, key=key, value=value, partition=partition, headers=list(headers), timestamp=sent_ms)
        assert producer.flush(30) == 0

    def send_dispatches(self, *parcel_ids: str, partition: int = 0) -> None:
        """Append valid dispatches."""
        schema_id = self.schema_ids[DISPATCHED]
        for parcel_id in parcel_ids:
            event = body(a_dispatch(parcel_id=parcel_id))
            self.send(framed(schema_id, event), partition=partition, headers=[("ce_id", parcel_id.encode())])

    def send_many(self, count: int, *, partition: int = 0) -> None:
        """Append one valid dispatch many times."""
        producer = ordered({**self._kafka.client_config(), "linger.ms": 20, "queue.buffering.max.messages": count})
        value = framed(self.schema_ids[DISPATCHED], body(a_dispatch()))
        for _ in range(count):
            producer.produce(self.dispatched.name, key=b"key", value=value, partition=partition)
        assert producer.flush(60) == 0

    def read(self, topic: str) -> list[Message]:
        """Every committed record of a topic now."""
        return list(self._read(topic))

    def _read(self, topic: str) -> Iterator[Message]:
        consumer = Consumer(
            self._kafka.client_config()
            | {"group.id": "tests", "isolation.level": "read_committed", "enable.partition.eof": True}
        )
        try:
            for partition in consumer.list_topics(topic, timeout=30).topics[topic].partitions:
                # From the first one that is left; the end is not counted in offsets, for transactions have markers.
                consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
                while True:
                    message = consumer.poll(30)
                    assert message is not None, f"{topic}/{partition} does not end"
                    error = message.error()
                    if error is not None:
                        assert error.code() == KafkaError._PARTITION_EOF, str(error)
                        break
                    yield message
        finally:
            consumer.close()


def renamed(catalog: Catalog, tag: str, names: Sequence[str] = (DISPATCHED, ENRICHED)) -> dict[str, TopicContract]:
    """The topics of a test, by the names that they have in the contracts."""
    return {name: _renamed(catalog.topic(name), tag) for name in names}


def _renamed(topic: TopicContract, tag: str) -> TopicContract:
    section = topic.lake_section
    lake = section if section == "none" else section.model_copy(update={"table": f"{tag}_{section.table}"})
    made_of = topic.derivation_section
    derivation = made_of if made_of == "none" else made_of.model_copy(update=_under(tag, made_of))
    new = {"name": f"{tag}.{topic.name}", "derivation_section": derivation, "lake_section": lake}
    return topic.model_copy(update=new)


def _under(tag: str, derivation: Derivation) -> dict[str, str]:
    names = {field: getattr(derivation, field) for field in ("topic", "joined_with", "united_with")}
    return {field: f"{tag}.{name}" for field, name in names.items() if name is not None}

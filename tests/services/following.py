"""A compacted topic, the dimension that is made of it, and processes that follow it."""

from __future__ import annotations

import dataclasses
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Thread
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from deltalake import DeltaTable

from contracts.definitions.dimension import DimensionContract
from contracts.publisher import Publisher
from contracts.records.codec import Codec
from contracts.servers.provision import create_topics
from contracts.servers.registry import Registry
from contracts.servers.s3 import s3_client
from deploy.local.servers.stack import LocalStack
from services.dimensions.fold import Positions
from services.dimensions.follower import Follower
from services.dimensions.publication import Publications
from services.dimensions.settings import DimensionsSettings
from tests import sample
from tests.contracts.project import a_project, applied
from tests.producers import ordered

NAMED = {
    "type": "record",
    "name": "CourierNamed",
    "doc": "A courier has a name.",
    "fields": [
        {"name": "courier", "type": "string", "doc": "Code of the courier."},
        {"name": "named_at", "type": {"type": "long", "logicalType": "timestamp-millis"}, "doc": "Since when."},
        {"name": "name", "type": "string", "doc": "Name of the courier."},
    ],
}
NAMED_AT = datetime(2026, 1, 1, tzinfo=UTC)


def couriers(topic: str, **overrides: Any) -> DimensionContract:
    """The couriers of the sample, made of a topic."""
    said = sample.catalog().dimension("couriers").model_dump(by_alias=True, exclude_none=True)
    for name in ("source", "null_values", "max_shrink_percent"):
        del said[name]
    return DimensionContract.model_validate(said | {"topic": topic, "every_seconds": 1, **overrides})


def wait_for(what: str, holds: Callable[[], object], seconds: float = 60) -> None:
    """Until `holds`; fails with `what` otherwise."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"waited {seconds:g} s for {what}"
        time.sleep(0.05)


class Place:
    """The topic, under a name of its own, and a bucket of its own or a `location` in the stack's."""

    def __init__(self, stack: LocalStack, folder: Path, *, location: str | None = None, partitions: int = 2) -> None:
        contract = {
            "key": "courier",
            "occurred_at": "named_at",
            "compacted": True,
            "consumers": ["dimensions"],
            "lake": "none",
            "partitions": partitions,
        }
        project = a_project(folder, schemas=[NAMED], **contract)
        self.topic = applied(project, stack)
        of_stack = stack.settings()
        s3 = of_stack.s3
        if location is None:
            s3 = s3.model_copy(update={"bucket": f"followed-{uuid.uuid4().hex[:8]}"})
            s3_client(s3).create_bucket(Bucket=s3.bucket)
        self.contract = couriers(self.topic, **({} if location is None else {"location": location}))
        self.catalog = dataclasses.replace(project, dimensions={self.contract.name: self.contract})
        self.settings = DimensionsSettings(kafka=of_stack.kafka, registry=of_stack.registry, s3=s3)
        with Registry(of_stack.registry) as registry:
            schema_id = registry.latest(project.topic(self.topic).subject).id
        self.codec = Codec({schema_id: project.schema(self.topic)}.__getitem__)
        self.schema_id = schema_id
        self._producer = ordered(self.settings.kafka.client_config())

    def name(self, courier: str, name: str, **record: Any) -> None:
        """Send an event, and wait until it is there."""
        self.send(courier.encode(), self.event(courier, name), **record)

    def event(self, courier: str, name: str) -> bytes:
        """A record's value."""
        return self.codec.encode(self.schema_id, {"courier": courier, "named_at": NAMED_AT, "name": name})

    def send(self, key: bytes, value: bytes | None, **record: Any) -> None:
        """Any record."""
        self._producer.produce(self.topic, key=key, value=value, **record)
        assert self._producer.flush(30) == 0

    def configure(self, settings: Mapping[str, str]) -> None:
        """The topic gets these settings."""
        admin = AdminClient({**self.settings.kafka.client_config()})
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in settings.items()
        ]
        asked = [ConfigResource(ResourceType.TOPIC, self.topic, incremental_configs=entries)]
        for done in admin.incremental_alter_configs(asked).values():
            done.result()

    def offsets(self, partition: int = 0) -> list[int]:
        """Of the records that a partition still has."""
        config: dict[str, Any] = {
            **self.settings.kafka.client_config(),
            "group.id": "offsets",
            "enable.partition.eof": True,
        }
        consumer = Consumer(config)
        consumer.assign([TopicPartition(self.topic, partition, OFFSET_BEGINNING)])
        found = []
        try:
            while (message := consumer.poll(10)) is not None and message.error() is None:
                found.append(message.offset() or 0)
        finally:
            consumer.close()
        return found

    def forget(self, partition: int, before: int) -> None:
        """The records before an offset are gone, as those are that compaction removes."""
        admin = AdminClient({**self.settings.kafka.client_config()})
        # Brokers refuse it where they compact alone.
        self.configure({"cleanup.policy": "compact,delete"})

        def forgotten() -> bool:
            """Not before the brokers know of that."""
            try:
                for future in admin.delete_records([TopicPartition(self.topic, partition, before)]).values():
                    future.result()
            except KafkaException as error:
                if error.args[0].code() != KafkaError.POLICY_VIOLATION:
                    raise
                return False
            return True

        wait_for("the records to be gone", forgotten)

    def make_anew(self) -> None:
        """Delete the topic, and create it."""
        admin = AdminClient({**self.settings.kafka.client_config()})
        admin.delete_topics([self.topic], request_timeout=30)[self.topic].result()
        wait_for("the topic's end", lambda: self.topic not in admin.list_topics(timeout=10).topics)
        create_topics(self.settings, self.catalog)
        wait_for("the topic", lambda: self.topic in admin.list_topics(timeout=10).topics)

    @property
    def publications(self) -> Publications:
        """As a process has them."""
        return Publications(self.settings.s3)

    @contextmanager
    def following(self, **settings: Any) -> Iterator[Follower]:
        """A process that follows the topic."""
        stop, chosen = Event(), self.settings.model_copy(update=settings)
        with (
            Registry(chosen.registry) as registry,
            Publisher(chosen, service="dimensions", topics=(), catalog=self.catalog, registry=registry) as publisher,
        ):
            follower = Follower(self.contract, chosen, self.catalog, registry, self.publications, publisher)
            thread = Thread(target=follower.run, args=(stop,))
            thread.start()
            try:
                yield follower
            finally:
                stop.set()
                thread.join(30)
                assert not thread.is_alive()

    def table(self) -> DeltaTable | None:
        """The dimension's; None if there is none."""
        uri = f"s3://{self.settings.s3.bucket}/{self.contract.location}"
        options = self.settings.s3.delta_options()
        return DeltaTable(uri, storage_options=options) if DeltaTable.is_deltatable(uri, options) else None

    def names(self) -> dict[str, str] | None:
        """By courier, in the version in force; None if there is none."""
        table = self.table()
        if table is None:
            return None
        return {row["courier"]: row["name"] for row in table.to_pyarrow_table().to_pylist()}

    def positions(self, made_by: str | None = None) -> Positions | None:
        """Up to where the topic was read for the last publication, by this contract's digest or the service's; None if there is none."""
        own = self.contract.digest(self.catalog.schema(self.topic))
        last = self.publications.last_fold(self.contract, made_by or own)
        return None if last is None else last[0]

    def version(self) -> int:
        """In force; -1 if there is none."""
        table = self.table()
        return -1 if table is None else table.version()

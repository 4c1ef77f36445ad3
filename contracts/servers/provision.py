"""Makes brokers and registries agree with the contracts: idempotent, and never destructive."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from contracts.checks.compatibility import incompatibilities
from contracts.definitions.catalog import Catalog
from contracts.definitions.topic import TopicContract
from contracts.errors import SchemaIncompatible, TopicUnfit, UnknownSubject
from contracts.records.limits import DEAD_LETTER_BYTES, batch_limit
from contracts.servers.brokers import retried
from contracts.servers.registry import RegisteredSchema, Registry
from contracts.settings import KafkaSettings, Settings

_DAY_MS = 86_400_000
_TIMEOUT_SECONDS = 30.0
_CHECK_SECONDS = 10.0
"""Brokers that don't answer hold up a start for so long, which then finds out by itself."""

_BEFORE_MS, AHEAD_MS = 36_525 * _DAY_MS, 3_600_000
"""A century before now, and an hour after, as Kafka itself has it. Spark's source ends its query at a time with more microseconds than
64 bits hold, and moves those of before 1582 to another calendar. A record without a time (-1) passes.
"""
_ANY_MS = (1 << 63) - 1
_NOT_COMPACTED_MS = 3_600_000
"""For so long an aggregate has what a new record of its key replaces, so that a reader that asked for the end before finds each key up to there."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Wanted:
    partitions: int
    config: Mapping[str, str]


def create_topics(settings: Settings, catalog: Catalog) -> list[str]:
    """Create every topic of the contracts and its dead-letter topic, replicated as the brokers do by default.

    What exists gets missing partitions and the contract's configuration; surplus partitions can't be taken away and are
    reported. Returns one line for each thing that was done or differs: nothing to say, nothing to do. Raises
    confluent_kafka.KafkaException if the brokers refuse.
    """
    admin = AdminClient({**settings.kafka.client_config(), "log_level": 0})  # its end would log cancelled requests
    wanted = _wanted(catalog)
    known = _partition_counts(admin)
    created = _create(admin, {name: topic for name, topic in wanted.items() if name not in known})
    there = [name for name in wanted if name not in created]
    existing = _partition_counts(admin, there)
    return [
        *(f"{name}: created with {wanted[name].partitions} partitions" for name in created),
        *_add_partitions(admin, {name: (existing[name], wanted[name].partitions) for name in there}),
        *set_config(admin, {name: wanted[name].config for name in there}),
    ]


def check_limits(kafka: KafkaSettings, catalog: Catalog, topics: Iterable[str]) -> None:
    """Raise TopicUnfit unless each of these topics (of contracts, or their dead letters) takes what its contract lets through.

    A warning where the brokers don't say: they are away, or we have no right to ask.
    """
    wanted = _wanted(catalog)
    admin = AdminClient({**kafka.client_config(), "log_level": 0})
    # Each once, though pipelines share dead letters: librdkafka can't read the answer to a question that is asked twice.
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in dict.fromkeys(topics)]
    found = admin.describe_configs(resources, request_timeout=_CHECK_SECONDS)
    for resource, future in found.items():
        name, cure = resource.name, "run `headrace topics create`"
        try:
            takes = int(future.result()["max.message.bytes"].value)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise TopicUnfit(f"there is no topic {name}: {cure}") from error
            _log.warning("%s: it can't be seen whether its records fit: %s", name, error.args[0].str())
            continue
        least = int(wanted[name].config["max.message.bytes"])
        if takes < least:
            raise TopicUnfit(f"{name} takes batches of {takes} bytes, and needs {least} by its contract: {cure}")


def register_contracts(registry: Registry, catalog: Catalog) -> list[str]:
    """Register every schema version of every topic, oldest first, under the topic's compatibility mode.

    Returns one line for each version that was not there before. Raises SchemaIncompatible, naming field, rule and both
    versions, before a version is registered that may not follow those of the registry; what was registered until then
    stays.
    """
    return [
        line for topic in catalog.topics.values() for line in _register(registry, topic, catalog.schemas(topic.name))
    ]


def _wanted(catalog: Catalog) -> dict[str, _Wanted]:
    wanted = {}
    for topic in catalog.topics.values():
        own = _config(
            topic.retention_days,
            topic.most_record_bytes,
            _BEFORE_MS,
            AHEAD_MS,
            compact=topic.is_aggregate,
        )
        if topic.compacted or topic.is_ranking:
            own |= {"cleanup.policy": "compact", "delete.retention.ms": own["retention.ms"]}
        # It keeps its record's timestamp, whatever the record's topic has let through.
        dead_letters = _config(topic.dead_letters.retention_days, DEAD_LETTER_BYTES, _ANY_MS, _ANY_MS)
        wanted[topic.name] = _Wanted(topic.partitions, own)
        wanted[topic.dead_letter_topic] = _Wanted(1, dead_letters)
        if topic.late_topic is not None:
            wanted[topic.late_topic] = _Wanted(topic.partitions, dead_letters)
    return wanted


def _config(
    retention_days: int, record_bytes: int, before_ms: int, after_ms: int, *, compact: bool = False
) -> dict[str, str]:
    """Of a topic with records up to this size, whose timestamps are at most so far before and after now. Of one that is to `compact` the newest
    record of each key is kept, and what it replaces for a while. How many replicas there are, and must be in sync, is the brokers' default.
    """
    return {
        "retention.ms": str(retention_days * _DAY_MS),
        "max.message.bytes": str(batch_limit(record_bytes)),
        "cleanup.policy": "compact,delete" if compact else "delete",
        # With the other one a dead letter would lose its record's time.
        "message.timestamp.type": "CreateTime",
        "message.timestamp.before.max.ms": str(before_ms),
        "message.timestamp.after.max.ms": str(after_ms),
        **({"min.compaction.lag.ms": str(_NOT_COMPACTED_MS)} if compact else {}),
    }


def _partition_counts(admin: AdminClient, names: Iterable[str] = ()) -> dict[str, int]:
    """Of all topics that a broker knows, once it knows these."""

    def counts() -> dict[str, int]:
        topics = admin.list_topics(timeout=_TIMEOUT_SECONDS).topics
        if missing := sorted(set(names) - topics.keys()):
            why = f"brokers say that these exist, and do not list them: {', '.join(missing)}"
            raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE, why))
        return {name: len(topic.partitions) for name, topic in topics.items()}

    return retried(counts, _TIMEOUT_SECONDS)


def _create(admin: AdminClient, missing: Mapping[str, _Wanted]) -> list[str]:
    """Return the names of those that it created; not of one that somebody else has just created, which the broker that was asked may not know of yet."""
    if not missing:
        return []
    topics = [NewTopic(name, topic.partitions, config=dict(topic.config)) for name, topic in missing.items()]
    created = []
    for name, future in admin.create_topics(topics, request_timeout=_TIMEOUT_SECONDS).items():
        try:
            future.result()
            created.append(name)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
    return created


def _add_partitions(admin: AdminClient, counts: Mapping[str, tuple[int, int]]) -> list[str]:
    fewer = {name: (have, want) for name, (have, want) in counts.items() if have < want}
    if fewer:
        wanted = [NewPartitions(name, want) for name, (_, want) in fewer.items()]
        _wait(admin.create_partitions(wanted, request_timeout=_TIMEOUT_SECONDS).values())
    return [
        *(f"{name}: grown from {have} to {want} partitions" for name, (have, want) in fewer.items()),
        *(
            f"{name}: has {have} partitions, the contract says {want}; left as it is"
            for name, (have, want) in counts.items()
            if have > want
        ),
    ]


def set_config(admin: AdminClient, wanted: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Give topics these settings, and leave all others as they are; a line for each that was different.

    Raises confluent_kafka.KafkaException if the brokers refuse.
    """
    if not wanted:
        return []
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in wanted]
    asked = admin.describe_configs(resources, request_timeout=_TIMEOUT_SECONDS)
    described = {resource.name: future for resource, future in asked.items()}
    lines, changes = [], []
    for name, config in wanted.items():
        actual = described[name].result()
        differing = {key: value for key, value in config.items() if actual[key].value != value}
        if differing:
            entries = [
                ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in differing.items()
            ]
            changes.append(ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries))
        lines += [f"{name}: {key} set from {actual[key].value} to {value}" for key, value in differing.items()]
    if changes:
        _wait(admin.incremental_alter_configs(changes, request_timeout=_TIMEOUT_SECONDS).values())
    return lines


def _wait(futures: Iterable[Future[Any]]) -> None:
    for future in futures:
        future.result()


def _register(registry: Registry, topic: TopicContract, schemas: list[str]) -> list[str]:
    lines = []
    try:
        known = registry.versions(topic.subject)
        registry.set_compatibility(topic.subject, topic.compatibility)
    except UnknownSubject:
        known = []
    for schema in schemas:
        if any(json.loads(schema) == json.loads(version.schema) for version in known):
            continue
        number = known[-1].version + 1 if known else 1
        _check(topic, known, schema, number)
        schema_id = registry.register(topic.subject, schema)
        lines.append(f"{topic.subject}: version {number} registered with id {schema_id}")
        if not known:
            registry.set_compatibility(topic.subject, topic.compatibility)
        known.append(RegisteredSchema(schema_id, topic.subject, number, schema))
    return lines


def _check(topic: TopicContract, known: list[RegisteredSchema], schema: str, number: int) -> None:
    problems = incompatibilities(
        [*(version.schema for version in known), schema],
        topic.compatibility,
        versions=[*(version.version for version in known), number],
    )
    if problems:
        found = "; ".join(map(str, problems))
        raise SchemaIncompatible(f"{topic.subject}: version {number} breaks {topic.compatibility}: {found}")

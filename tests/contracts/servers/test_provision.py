"""Applying the contracts makes them true, says what it did, and does nothing the second time."""

from __future__ import annotations

import json
import secrets
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType  # type: ignore[attr-defined]

from contracts.errors import SchemaIncompatible, TopicUnfit
from contracts.records.limits import DEAD_LETTER_BYTES, RAW_BYTES, batch_limit
from contracts.servers.provision import check_limits, create_topics, register_contracts
from contracts.servers.registry import Registry
from contracts.settings import KafkaSettings
from deploy.local.servers.stack import LocalStack
from tests import sample
from tests.administered import limit_batches
from tests.contracts.project import a_project, applied, dispatched_schema, settings_of
from tests.raw_records import RawRecord, send_raw

pytestmark = pytest.mark.system


def config_on(stack: LocalStack, name: str) -> dict[str, str]:
    """The settings of a topic."""
    admin = AdminClient({"bootstrap.servers": stack.kafka.bootstrap_servers})
    (config,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, name)]).values()
    return {key: entry.value for key, entry in config.result(10).items()}


def topic_on(stack: LocalStack, name: str) -> tuple[int, int]:
    """Partitions and retention (in days) of a topic."""
    admin = AdminClient({"bootstrap.servers": stack.kafka.bootstrap_servers})
    partitions = len(admin.list_topics(name, timeout=10).topics[name].partitions)
    (config,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, name)]).values()
    return partitions, int(config.result(10)["retention.ms"].value) // 86_400_000


def with_field(**field: Any) -> dict[str, Any]:
    schema = dispatched_schema()
    return {**schema, "fields": [*schema["fields"], field]}


def test_topics_are_created_once_with_partitions_retention_and_dead_letters(stack: LocalStack, tmp_path: Path) -> None:
    catalog = a_project(tmp_path, partitions=3, retention_days=5)
    (name,) = catalog.topics
    assert create_topics(settings_of(stack), catalog) == [
        f"{name}: created with 3 partitions",
        f"{name}.dlq: created with 1 partitions",
    ]
    assert create_topics(settings_of(stack), catalog) == []
    assert topic_on(stack, name) == (3, 5)
    assert topic_on(stack, f"{name}.dlq") == (1, 30)


def test_of_several_who_create_topics_at_once_one_creates_each(stack: LocalStack, tmp_path: Path) -> None:
    catalog = a_project(tmp_path, partitions=3)
    with ThreadPoolExecutor(8) as pool:
        told = [pool.submit(create_topics, settings_of(stack), catalog) for _ in range(8)]
    lines = [line for each in told for line in each.result()]
    (name,) = catalog.topics
    assert sorted(lines) == [f"{name}.dlq: created with 1 partitions", f"{name}: created with 3 partitions"]


def test_a_contract_that_grew_adds_partitions_and_changes_retention(stack: LocalStack, tmp_path: Path) -> None:
    name = next(iter((before := a_project(tmp_path / "before", partitions=1)).topics))
    create_topics(settings_of(stack), before)
    after = a_project(tmp_path / "after", topic=name, partitions=2, retention_days=1)
    assert create_topics(settings_of(stack), after) == [
        f"{name}: grown from 1 to 2 partitions",
        f"{name}: retention.ms set from {30 * 86_400_000} to {86_400_000}",
    ]
    assert topic_on(stack, name) == (2, 1)
    assert create_topics(settings_of(stack), after) == []


def test_of_a_compacted_topic_the_newest_record_of_each_key_is_kept_without_end(
    stack: LocalStack, tmp_path: Path
) -> None:
    catalog = a_project(tmp_path, compacted=True, retention_days=5)
    (name,) = catalog.topics
    create_topics(settings_of(stack), catalog)
    config = config_on(stack, name)
    assert (config["cleanup.policy"], config["delete.retention.ms"]) == ("compact", str(5 * 86_400_000))
    assert create_topics(settings_of(stack), catalog) == []


def test_of_an_aggregate_what_a_new_record_replaces_is_there_for_an_hour(stack: LocalStack) -> None:
    names = [topic.name for topic in sample.catalog().topics.values() if topic.is_aggregate]
    config = config_on(stack, names[0])
    assert (config["cleanup.policy"], config["min.compaction.lag.ms"]) == ("compact,delete", "3600000")


def test_topics_take_what_the_rule_lets_through_and_keep_the_time_of_records(stack: LocalStack, tmp_path: Path) -> None:
    name = applied(a_project(tmp_path), stack)
    own, dead_letters = config_on(stack, name), config_on(stack, f"{name}.dlq")
    for config in (own, dead_letters):
        assert (config["cleanup.policy"], config["message.timestamp.type"]) == ("delete", "CreateTime")
    assert int(own["max.message.bytes"]) == batch_limit(RAW_BYTES)
    assert int(dead_letters["max.message.bytes"]) == batch_limit(DEAD_LETTER_BYTES)


@pytest.mark.parametrize("compression", [None, "lz4", "zstd", "gzip", "snappy"])
def test_a_record_at_its_limit_is_taken_however_it_is_packed(
    stack: LocalStack, tmp_path: Path, compression: str | None
) -> None:
    name = applied(a_project(tmp_path), stack)
    for topic, size in ((name, RAW_BYTES), (f"{name}.dlq", DEAD_LETTER_BYTES)):
        record = RawRecord(None, secrets.token_bytes(size))
        assert send_raw(settings_of(stack).kafka, topic, 0, [record], compression=compression) == [0]


def test_a_time_that_sparks_source_cannot_take_is_refused_but_not_of_a_dead_letter(
    stack: LocalStack, tmp_path: Path
) -> None:
    name = applied(a_project(tmp_path), stack)
    times = [-1, 0, -12_219_292_800_001, 8_000_000_000_000_000, 2**62, -(2**62), 9_223_372_036_854_776]
    found = send_raw(settings_of(stack).kafka, name, 0, [RawRecord(None, b"", timestamp_ms=each) for each in times])
    refused = "InvalidTimestampError"
    assert found == [0, 1, *[refused] * 5]
    letters = send_raw(
        settings_of(stack).kafka, f"{name}.dlq", 0, [RawRecord(None, b"", timestamp_ms=each) for each in times]
    )
    assert letters == list(range(len(times)))


def test_a_start_is_refused_while_a_topic_takes_less_than_the_rule_says(stack: LocalStack, tmp_path: Path) -> None:
    catalog, settings = a_project(tmp_path), settings_of(stack)
    name = applied(catalog, stack)
    check_limits(settings.kafka, catalog, [name, f"{name}.dlq"])
    with pytest.raises(TopicUnfit, match=r"there is no topic other\.v1: run `headrace topics create`"):
        check_limits(settings.kafka, catalog, ["other.v1"])
    admin = AdminClient({"bootstrap.servers": stack.kafka.bootstrap_servers})
    limit_batches(admin, f"{name}.dlq", 1_048_588)
    least = batch_limit(DEAD_LETTER_BYTES)
    with pytest.raises(
        TopicUnfit, match=rf"{name}\.dlq takes batches of 1048588 bytes, and needs {least}.*`headrace topics create`"
    ):
        check_limits(settings.kafka, catalog, [name, f"{name}.dlq", f"{name}.dlq"])
    assert create_topics(settings, catalog) == [f"{name}.dlq: max.message.bytes set from 1048588 to {least}"]
    check_limits(settings.kafka, catalog, [name, f"{name}.dlq"])


def test_a_start_without_an_answer_of_the_brokers_goes_on_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("contracts.servers.provision._CHECK_SECONDS", 0.2)
    catalog = a_project(tmp_path)
    check_limits(KafkaSettings(bootstrap_servers="127.0.0.1:1"), catalog, list(catalog.topics))
    assert "can't be seen whether its records fit" in caplog.text


def test_surplus_partitions_stay_and_are_reported(stack: LocalStack, tmp_path: Path) -> None:
    name = next(iter((before := a_project(tmp_path / "before", partitions=2)).topics))
    create_topics(settings_of(stack), before)
    after = a_project(tmp_path / "after", topic=name, partitions=1)
    assert create_topics(settings_of(stack), after) == [f"{name}: has 2 partitions, the contract says 1; left as it is"]
    assert topic_on(stack, name) == (2, 30)


def test_every_version_is_registered_once_in_order_under_the_topics_mode(stack: LocalStack, tmp_path: Path) -> None:
    gate = {"name": "gate", "type": ["null", "string"], "default": None}
    catalog = a_project(tmp_path, schemas=[dispatched_schema(), with_field(**gate)], compatibility="FULL")
    (name,) = catalog.topics
    subject = f"{name}-value"
    with Registry(settings_of(stack).registry) as registry:
        lines = register_contracts(registry, catalog)
        versions = registry.versions(subject)
        assert lines == [f"{subject}: version {each.version} registered with id {each.id}" for each in versions]
        assert [each.version for each in versions] == [1, 2]
        assert register_contracts(registry, catalog) == []
        without_gate_or_weight = dispatched_schema()
        without_gate_or_weight["fields"].pop()
        assert registry.is_compatible(subject, json.dumps(without_gate_or_weight)), "FULL is stricter than BACKWARD"


def test_an_incompatible_change_is_refused_by_field_rule_and_both_versions(stack: LocalStack, tmp_path: Path) -> None:
    first = a_project(tmp_path / "first")
    (name,) = first.topics
    changed = a_project(
        tmp_path / "changed", topic=name, schemas=[dispatched_schema(), with_field(name="gate", type="string")]
    )
    with Registry(settings_of(stack).registry) as registry:
        register_contracts(registry, first)
        with pytest.raises(SchemaIncompatible) as raised:
            register_contracts(registry, changed)
        assert len(registry.versions(f"{name}-value")) == 1
    for part in (name, "BACKWARD", "gate", "version 1", "version 2"):
        assert part in str(raised.value)

"""Applying the contracts makes them true, says what it did, and does nothing the second time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType  # type: ignore[attr-defined]

from contracts.errors import SchemaIncompatible
from contracts.provision import create_topics, register_contracts
from contracts.registry import Registry
from deploy.local.stack import LocalStack
from tests.contracts.project import a_project, departed_schema, settings_of

pytestmark = pytest.mark.system


def topic_on(stack: LocalStack, name: str) -> tuple[int, int]:
    """Partitions and retention (in days) of a topic."""
    admin = AdminClient({"bootstrap.servers": stack.kafka.bootstrap_servers})
    partitions = len(admin.list_topics(name, timeout=10).topics[name].partitions)
    (config,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, name)]).values()
    return partitions, int(config.result(10)["retention.ms"].value) // 86_400_000


def with_field(**field: Any) -> dict[str, Any]:
    schema = departed_schema()
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


def test_surplus_partitions_stay_and_are_reported(stack: LocalStack, tmp_path: Path) -> None:
    name = next(iter((before := a_project(tmp_path / "before", partitions=2)).topics))
    create_topics(settings_of(stack), before)
    after = a_project(tmp_path / "after", topic=name, partitions=1)
    assert create_topics(settings_of(stack), after) == [f"{name}: has 2 partitions, the contract says 1; left as it is"]
    assert topic_on(stack, name) == (2, 30)


def test_every_version_is_registered_once_in_order_under_the_topics_mode(stack: LocalStack, tmp_path: Path) -> None:
    gate = {"name": "gate", "type": ["null", "string"], "default": None}
    catalog = a_project(tmp_path, schemas=[departed_schema(), with_field(**gate)], compatibility="FULL")
    (name,) = catalog.topics
    subject = f"{name}-value"
    with Registry(settings_of(stack).registry) as registry:
        lines = register_contracts(registry, catalog)
        versions = registry.versions(subject)
        assert lines == [f"{subject}: version {each.version} registered with id {each.id}" for each in versions]
        assert [each.version for each in versions] == [1, 2]
        assert register_contracts(registry, catalog) == []
        without_gate_or_distance = departed_schema()
        without_gate_or_distance["fields"].pop()
        assert registry.is_compatible(subject, json.dumps(without_gate_or_distance)), "FULL is stricter than BACKWARD"


def test_an_incompatible_change_is_refused_by_field_rule_and_both_versions(stack: LocalStack, tmp_path: Path) -> None:
    first = a_project(tmp_path / "first")
    (name,) = first.topics
    changed = a_project(
        tmp_path / "changed", topic=name, schemas=[departed_schema(), with_field(name="gate", type="string")]
    )
    with Registry(settings_of(stack).registry) as registry:
        register_contracts(registry, first)
        with pytest.raises(SchemaIncompatible) as raised:
            register_contracts(registry, changed)
        assert len(registry.versions(f"{name}-value")) == 1
    for part in (name, "BACKWARD", "gate", "version 1", "version 2"):
        assert part in str(raised.value)

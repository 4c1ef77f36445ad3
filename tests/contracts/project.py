"""A project of one topic, under a name of its own, for tests on the shared stack."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import HttpUrl

from contracts.definitions.catalog import Catalog, load_catalog
from contracts.servers.provision import create_topics, register_contracts
from contracts.servers.registry import Registry
from contracts.settings import KafkaSettings, RegistrySettings, Settings
from deploy.local.servers.stack import LocalStack
from tests import sample

DISPATCHED = "parcels.dispatched.v1"


def a_project(root: Path, *, schemas: Sequence[Mapping[str, Any]] = (), **overrides: Any) -> Catalog:
    """The contract of dispatches with `overrides`, and as many schema versions; default: that of the sample."""
    contract = yaml.safe_load((sample.CONTRACTS / "topics" / f"{DISPATCHED}.yaml").read_text(encoding="utf-8"))
    name = overrides.pop("topic", f"trials.t{uuid.uuid4().hex[:12]}.v1")
    versions = list(schemas) or [dispatched_schema()]
    contract |= {"topic": name, "schema": f"{name}/{len(versions)}.avsc", **overrides}
    for folder in (root / "topics", root / "schemas" / name):
        folder.mkdir(parents=True, exist_ok=True)
    (root / "topics" / f"{name}.yaml").write_text(yaml.safe_dump(contract), encoding="utf-8")
    for number, schema in enumerate(versions, start=1):
        (root / "schemas" / name / f"{number}.avsc").write_text(json.dumps(schema), encoding="utf-8")
    return load_catalog(root)


def dispatched_schema(*, only: Sequence[str] | None = None) -> dict[str, Any]:
    """The schema of dispatches, or some of its fields."""
    schema: dict[str, Any] = json.loads(
        (sample.CONTRACTS / "schemas" / DISPATCHED / "1.avsc").read_text(encoding="utf-8")
    )
    return {**schema, "fields": [field for field in schema["fields"] if only is None or field["name"] in only]}


def settings_of(stack: LocalStack, *, registry_url: str | None = None) -> Settings:
    """How to reach the stack, or its broker and another registry."""
    return Settings(
        kafka=KafkaSettings(bootstrap_servers=stack.kafka.bootstrap_servers),
        registry=RegistrySettings(url=HttpUrl(registry_url or stack.registry.url)),
    )


def applied(catalog: Catalog, stack: LocalStack) -> str:
    """Bring the project's only topic to the stack; returns its name."""
    settings = settings_of(stack)
    create_topics(settings, catalog)
    with Registry(settings.registry) as registry:
        register_contracts(registry, catalog)
    return next(iter(catalog.topics))

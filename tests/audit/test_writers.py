"""Which schemas the audit reads a topic's records by, from a registry whose nodes lag behind one another."""

from __future__ import annotations

import json
import time
import uuid

import pytest

from contracts.servers.registry import Registry
from deploy.local.servers.stack import LocalStack
from services.audit.records.writers import Writers
from tests.contracts.gateway import a_gateway
from tests.contracts.servers.test_registry import a_registry, a_schema


@pytest.mark.system
def test_a_version_that_a_node_lacks_is_waited_for_once_and_no_unknown_id_costs_another_request(
    stack: LocalStack,
) -> None:
    subject, other = (f"trials.{uuid.uuid4().hex}-value" for _ in range(2))
    with (
        Registry(stack.settings().registry) as registry,
        a_gateway(stack.registry.url) as gateway,
        a_registry(gateway.url) as theirs,
    ):
        first = registry.register(subject, a_schema(a="string"))
        assert len(theirs.versions(subject)) == 1
        second = registry.register(subject, a_schema(a="string", b={"type": "int", "default": 0}))
        elsewhere = registry.register(other, a_schema(c="string"))
        gateway.lag(2)
        writers = Writers(theirs, subject, known_by=time.monotonic() + 0.5)
        assert json.loads(writers.get(first) or "") == json.loads(registry.by_id(first))
        assert json.loads(writers.get(second) or "") == json.loads(registry.by_id(second))
        asked = len(gateway.seen)
        assert [writers.get(each) for each in (elsewhere, *range(100_000, 101_000))] == [None] * 1001
        assert len(gateway.seen) == asked
        assert Writers(theirs, other + "-nobody's", known_by=0.0).get(first) is None

"""Whatever the registry does, it makes no dead letters: what is known goes on, what isn't waits."""

from __future__ import annotations

import pytest
import structlog
from prometheus_client import REGISTRY
from pyspark.sql import SparkSession

from contracts.servers.registry import Registry
from contracts.settings import RegistrySettings
from deploy.local.servers.stack import LocalStack
from spark.records import topic_schemas
from spark.runtime.settings import SparkSettings
from tests.contracts.gateway import HANG, HANG_UP, a_gateway
from tests.spark.examples import Topics, a_dispatch, body, framed, schema_with
from tests.spark.live_query import Dimensions, parcels, running, wait_for

FAILURES = {
    "down": (HANG_UP, ""),
    "slow": (HANG, ""),
    "500": (500, '{"error_code": 50001, "message": "the backend store is away"}'),
    "nonsense": (200, "welcome to the WiFi"),
}


def test_a_failing_registry_makes_no_dead_letters_and_says_so_once(
    spark: SparkSession,
    settings: SparkSettings,
    stack: LocalStack,
    registry: Registry,
    topics: Topics,
    published: Dimensions,
    monkeypatch: pytest.MonkeyPatch,
    subtests: pytest.Subtests,
) -> None:
    monkeypatch.setattr(topic_schemas, "_PAUSE_SECONDS", 0.2)
    subject = topics.dispatched.subject
    with (
        a_gateway(stack.registry.url) as gateway,
        Registry(
            RegistrySettings.model_validate({"url": gateway.url}), retry_seconds=0.1, timeout_seconds=2.0
        ) as theirs,
        running(spark, settings, theirs, topics.catalog, published) as query,
        structlog.testing.capture_logs() as logs,
    ):
        expected = ["before"]
        topics.send_dispatches("before")
        query.processAllAvailable()
        for name, failure in FAILURES.items():
            with subtests.test(f"known ids go on while it is {name}"):
                gateway.fail(*failure)
                topics.send_dispatches(name)
                expected.append(name)
                query.processAllAvailable()
                assert parcels(topics) == expected
                assert gauge("headrace_registry_unavailable", subject) == 1

        newer = schema_with({"name": "gate", "type": "string", "default": "?"})
        schema_id = registry.register(subject, newer)
        topics.send(framed(schema_id, body(a_dispatch(parcel_id="new", gate="C70"), newer)))
        wait_for("the batch to wait", lambda: gauge("headrace_registry_waiting", subject) == 1)
        for name, failure in FAILURES.items():
            with subtests.test(f"a new id waits while it is {name}"):
                gateway.fail(*failure)
                asked = len(gateway.seen)
                wait_for("it to be asked again", lambda asked=asked: len(gateway.seen) > asked + 1)
                assert gauge("headrace_registry_waiting", subject) == 1
                assert parcels(topics) == expected

        gateway.heal()
        query.processAllAvailable()
        assert parcels(topics) == [*expected, "new"]
        assert topics.read(topics.dispatched.dead_letter_topic) == []
        assert gauge("headrace_registry_unavailable", subject) == 0
        assert [line["event"] for line in logs if "registry" in line["event"]] == [
            "registry unavailable",
            "waiting for the registry: a record names a schema id not known yet",
            "registry answers again",
        ]


def gauge(name: str, subject: str) -> float | None:
    return REGISTRY.get_sample_value(name, {"subject": subject})

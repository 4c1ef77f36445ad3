"""A node of the registry that lags behind makes no dead letters, and garbage is not waited for again and again."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from pyspark.sql import SparkSession

from contracts.definitions.catalog import Catalog
from contracts.servers.registry import Registry
from contracts.settings import RegistrySettings
from deploy.local.servers.stack import LocalStack
from spark.queries.lake import LakeTable
from spark.records.topic_schemas import TopicSchemas
from spark.runtime.errors import StopRequested
from spark.runtime.lifecycle import Lifecycle
from spark.runtime.settings import LakeSettings, SparkSettings
from tests.contracts.gateway import HANG_UP, Gateway, a_gateway
from tests.spark import real_time_query
from tests.spark.examples import DISPATCHED, Topics, a_dispatch, body, framed, schema_with
from tests.spark.live_query import Dimensions, parcels, running, wait_for

NEWER = schema_with({"name": "gate", "type": "string", "default": "?"})
ANSWERS = 6
"""So many are as before: more than one look at what the subject has takes."""


@pytest.fixture
def gateway(stack: LocalStack) -> Iterator[Gateway]:
    with a_gateway(stack.registry.url) as made:
        yield made


@pytest.fixture
def lagging(gateway: Gateway) -> Iterator[Registry]:
    with Registry(RegistrySettings.model_validate({"url": gateway.url})) as client:
        yield client


def release(topics: Topics, registry: Registry, gateway: Gateway) -> None:
    """A new version and a record of it, while the gateway lags."""
    schema_id = registry.register(topics.dispatched.subject, NEWER)
    gateway.lag(ANSWERS)
    topics.send(framed(schema_id, body(a_dispatch(parcel_id="new", gate="C70"), NEWER)))


@pytest.mark.parametrize("mode", ["exactly-once", pytest.param("at-least-once", marks=pytest.mark.long)])
def test_a_record_of_a_version_just_registered_is_enriched(
    spark: SparkSession,
    settings: SparkSettings,
    registry: Registry,
    lagging: Registry,
    gateway: Gateway,
    topics: Topics,
    published: Dimensions,
    mode: str,
) -> None:
    with running(spark, settings, lagging, topics.catalog, published, mode=mode) as query:
        topics.send_dispatches("before")
        query.processAllAvailable()
        release(topics, registry, gateway)
        query.processAllAvailable()
        topics.send_dispatches("after")
        query.processAllAvailable()
    assert parcels(topics) == ["before", "new", "after"]
    assert topics.read(topics.dispatched.dead_letter_topic) == []


@pytest.mark.long
def test_the_same_in_real_time_mode(
    spark: SparkSession,
    settings: SparkSettings,
    registry: Registry,
    lagging: Registry,
    gateway: Gateway,
    topics: Topics,
    published: Dimensions,
) -> None:
    with real_time_query.running(spark, settings, lagging, topics, published):
        topics.send_dispatches("before")
        wait_for("the first record", lambda: parcels(topics) == ["before"])
        release(topics, registry, gateway)
        wait_for("the record of the new version", lambda: parcels(topics) == ["before", "new"])
    assert topics.read(topics.dispatched.dead_letter_topic) == []


@pytest.mark.long
def test_the_same_in_the_lake(
    spark: SparkSession,
    settings: SparkSettings,
    registry: Registry,
    lagging: Registry,
    gateway: Gateway,
    topics: Topics,
) -> None:
    own = settings.model_copy(update={"lake": LakeSettings(trigger_seconds=0)})
    topic, schema = topics.dispatched, topics.catalog.schema(DISPATCHED)
    table = LakeTable(spark, own, topic, schema, lagging, Lifecycle())
    query = table.start()
    try:
        topics.send_dispatches("before")
        query.processAllAvailable()
        release(topics, registry, gateway)
        query.processAllAvailable()
    finally:
        query.stop()
        table.close()
    assert sorted(row["parcel_id"] for row in spark.read.format("delta").load(table.path).collect()) == [
        "before",
        "new",
    ]
    assert topics.read(topic.dead_letter_topic) == []


@pytest.mark.parametrize("mode", ["exactly-once", pytest.param("at-least-once", marks=pytest.mark.long)])
def test_many_ids_of_nobody_are_dead_letters_after_one_grace(
    spark: SparkSession, settings: SparkSettings, registry: Registry, topics: Topics, published: Dimensions, mode: str
) -> None:
    with (
        running(spark, settings, registry, topics.catalog, published, mode=mode) as query,
        structlog.testing.capture_logs() as logs,
    ):
        for first in (1_000_000, 2_000_000):
            topics.send(*[framed(first + number, b"whatever") for number in range(20)])
            query.processAllAvailable()
        topics.send_dispatches("after")
        query.processAllAvailable()
    assert parcels(topics) == ["after"]
    letters: set[Any] = {letter.value() for letter in topics.read(topics.dispatched.dead_letter_topic)}
    assert len(letters) == 40
    # The first of them is waited for; at the second it is known that none will be for a while.
    assert len([line for line in logs if line["event"] == "a record names a schema id not known yet"]) <= 4


class Clock(threading.Event):
    """A clock that moves on while it is waited for, and only then."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds

    def wait(self, timeout: float | None = None) -> bool:
        self.seconds += timeout or 0.0
        return self.is_set()


def test_ids_of_nobody_that_do_not_end_fail_a_query_ever_more_seldom(stack: LocalStack, topics: Topics) -> None:
    settings = RegistrySettings.model_validate({"url": stack.registry.url, "lag_seconds": 1})
    clock = Clock()
    with Registry(settings) as quick:
        schemas = TopicSchemas(quick, topics.dispatched, topics.catalog.schema(DISPATCHED), clock)
        failures = 0
        for schema_id in range(1_000_000, 1_000_400):
            clock.wait(1)
            schemas.renew()
            if schemas.current.foreign is not None:
                schemas.look_up(schema_id, clock)
                failures += 1
    # Two for each rest: 10 s, 20 s, 40 s, … With rests of 10 s there would be some 70.
    assert 2 <= failures <= 16


def test_garbage_makes_no_version_foreign_that_is_registered_while_it_is_not_waited_for(
    stack: LocalStack, catalog: Catalog, registry: Registry
) -> None:
    """In real-time mode a record may be read before the next look at the subject, so "all others" would be foreign too soon."""
    topic = catalog.topic(DISPATCHED).model_copy(update={"name": f"t{uuid.uuid4().hex[:8]}.{DISPATCHED}"})
    registry.register(topic.subject, catalog.schema(DISPATCHED))
    clock = Clock()
    with Registry(RegistrySettings.model_validate({"url": stack.registry.url, "lag_seconds": 1})) as client:
        schemas = TopicSchemas(client, topic, catalog.schema(DISPATCHED), clock)
        schemas.renew()
        for garbage in (999_001, 999_002, 999_003):
            schemas.look_up(garbage, clock, one_by_one=True)
        assert schemas.current.foreign == frozenset({999_001, 999_002, 999_003})
        newer = registry.register(topic.subject, NEWER)
        schemas.look_up(newer, clock, one_by_one=True)
        assert newer in schemas.current.writers
        for garbage in range(999_004, 999_110):
            schemas.look_up(garbage, clock, one_by_one=True)
        assert schemas.current.foreign is None, "each of them would start the query anew"


def test_ids_that_are_looked_up_together_are_foreign_once_the_registry_can_t_lag_behind_any_more(
    stack: LocalStack, gateway: Gateway, catalog: Catalog, registry: Registry
) -> None:
    topic = catalog.topic(DISPATCHED).model_copy(update={"name": f"t{uuid.uuid4().hex[:8]}.{DISPATCHED}"})
    registry.register(topic.subject, catalog.schema(DISPATCHED))
    clock = Clock()
    with Registry(RegistrySettings.model_validate({"url": gateway.url, "lag_seconds": 1})) as client:
        schemas = TopicSchemas(client, topic, catalog.schema(DISPATCHED), clock)
        schemas.renew()
        newer = registry.register(topic.subject, NEWER)
        # As many answers as the first of two questions takes.
        gateway.lag(1)
        # In the records' order, so that a query passes the first of many.
        ids = [*range(999_500, 999_000, -1)]
        schemas.look_up_together([newer, *ids], clock)
        assert newer in schemas.current.writers
        assert clock.seconds == 1
        assert schemas.current.foreign == frozenset(ids[:300])
        schemas.look_up_together([newer, ids[0]], clock)
        assert clock.seconds == 1, "nothing is asked for that is known"
        clock.set()
        with pytest.raises(StopRequested):
            schemas.look_up_together([998_000], clock)


def test_while_every_other_id_is_foreign_a_batch_waits_for_a_registry_that_does_not_answer(
    gateway: Gateway, catalog: Catalog, registry: Registry
) -> None:
    topic = catalog.topic(DISPATCHED).model_copy(update={"name": f"t{uuid.uuid4().hex[:8]}.{DISPATCHED}"})
    registry.register(topic.subject, catalog.schema(DISPATCHED))
    with Registry(
        RegistrySettings.model_validate({"url": gateway.url, "lag_seconds": 1}), retry_seconds=0.1, timeout_seconds=0.5
    ) as client:
        clock = Clock()
        schemas = TopicSchemas(client, topic, catalog.schema(DISPATCHED), clock)
        schemas.renew()
        for garbage in (999_001, 999_002):
            schemas.look_up(garbage, clock)
        assert schemas.current.foreign is None
        newer = registry.register(topic.subject, NEWER)
        gateway.fail(HANG_UP)
        stopping = threading.Event()
        threading.Timer(1, stopping.set).start()
        with pytest.raises(StopRequested):
            schemas.renew_for_batch(stopping)
        gateway.heal()
        schemas.renew_for_batch(clock)
    assert newer in schemas.current.writers

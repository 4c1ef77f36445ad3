"""A registry that lost everything, and has the contracts again under other ids, is noticed by whoever knows the old ones."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from pyspark.sql import SparkSession

from contracts.errors import RegistryMadeAnew
from contracts.servers import own_schema
from spark.records.topic_schemas import TopicSchemas
from spark.runtime.settings import SparkSettings
from tests.contracts.lost_registry import LostRegistry
from tests.spark.examples import DISPATCHED, ENRICHED, SCHEMA, Topics, schema_with
from tests.spark.live_query import Dimensions, parcels, running, wait_for

OTHER = json.dumps({"type": "record", "name": "Other", "fields": [{"name": "a", "type": "string"}]})
NEWER = schema_with({"name": "gate", "type": "string", "default": "?"})


@pytest.fixture
def lost(tmp_path: Path) -> Iterator[LostRegistry]:
    made = LostRegistry(tmp_path)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Own schemas are checked whenever somebody looks."""
    monkeypatch.setattr(own_schema, "_CHECK_SECONDS", 0.0)


def test_ids_that_are_new_are_read_beside_the_old_ones_and_it_is_told(topics: Topics, lost: LostRegistry) -> None:
    subject = topics.dispatched.subject
    lost.client.register(subject, SCHEMA)
    schemas = TopicSchemas(lost.client, topics.dispatched, SCHEMA)
    assert schemas.renew()
    assert set(schemas.current.writers) == {1}
    lost.make_anew((f"{subject}-other", OTHER), (subject, SCHEMA))
    with structlog.testing.capture_logs() as logs:
        assert schemas.renew()
    assert set(schemas.current.writers) == {1, 2}
    ((before, now),) = [(line["id_before"], line["id"]) for line in logs if "made anew" in line["event"]]
    assert (before, now) == (1, 2)


def test_an_id_that_means_another_schema_now_is_refused(topics: Topics, lost: LostRegistry) -> None:
    subject = topics.dispatched.subject
    lost.client.register(subject, SCHEMA)
    schemas = TopicSchemas(lost.client, topics.dispatched, SCHEMA)
    assert schemas.renew()
    lost.make_anew((subject, NEWER))
    with pytest.raises(RegistryMadeAnew, match=f"id 1 is version 1 of {subject}, and before it was another schema"):
        schemas.renew()


def test_live_stops_rather_than_write_an_id_that_nobody_knows(
    spark: SparkSession,
    settings: SparkSettings,
    topics: Topics,
    published: Dimensions,
    lost: LostRegistry,
    at_once: None,
) -> None:
    dispatched, enriched = topics.dispatched.subject, topics.enriched.subject
    theirs = topics.catalog.schema(ENRICHED)
    topics.schema_ids[DISPATCHED] = lost.client.register(dispatched, SCHEMA)
    topics.schema_ids[ENRICHED] = lost.client.register(enriched, theirs)
    with running(spark, settings, lost.client, topics.catalog, published) as query:
        topics.send_dispatches("before")
        query.processAllAvailable()
        # The source's id is what it was.
        lost.make_anew((dispatched, SCHEMA), (f"{dispatched}-other", OTHER), (enriched, theirs))
        topics.send_dispatches("after")
        wait_for("the end of the query", lambda: not query.isActive)
        assert "was made anew" in str(query.exception())
    assert parcels(topics) == ["before"]

"""A registry that lost everything, and has the contracts again under other ids, stops whoever writes the old ones."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from contracts import publisher
from contracts.errors import RegistryMadeAnew
from contracts.handle import Topic
from contracts.publisher import Publisher
from contracts.servers import own_schema
from contracts.servers.own_schema import OwnSchema
from deploy.local.servers.stack import LocalStack
from tests.contracts.lost_registry import LostRegistry
from tests.contracts.project import a_project, applied, settings_of
from tests.contracts.wire import a_dispatch, records_of
from tests.sample import events

pytestmark = pytest.mark.system

OTHER = json.dumps({"type": "record", "name": "Other", "fields": [{"name": "a", "type": "string"}]})


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
    monkeypatch.setattr(publisher, "_LOOK_SECONDS", 0.1)


def test_a_publisher_whose_schema_has_another_id_refuses_every_record(
    stack: LocalStack, tmp_path: Path, lost: LostRegistry, at_once: None
) -> None:
    catalog, settings = a_project(tmp_path), settings_of(stack)
    handle = Topic(applied(catalog, stack), events.ParcelDispatched)
    subject, schema = catalog.topic(handle.name).subject, catalog.schema(handle.name)
    producer = Publisher(settings, catalog=catalog, registry=lost.client, service="dispatches", topics=[handle])
    producer.publish(handle, a_dispatch(), event_id="before")
    producer.flush(30)
    lost.make_anew((f"{subject}-other", OTHER), (subject, schema))
    deadline = time.monotonic() + 120
    # It may be asked before it has the schema again.
    with pytest.raises(RegistryMadeAnew, match=f"says (id 2|no id) for the schema of {subject} .* it was 1"):
        while time.monotonic() < deadline:
            producer.flush(30)
            time.sleep(0.05)
    for _ in range(2):
        with pytest.raises(RegistryMadeAnew, match="restart every producer"):
            producer.publish(handle, a_dispatch(), event_id="after")
    with pytest.raises(RegistryMadeAnew):
        producer.close()
    assert len(records_of(handle.name, settings)) == 1


def test_an_own_schema_that_the_registry_has_is_none_that_it_lost(lost: LostRegistry, at_once: None) -> None:
    own = OwnSchema(lost.client, "a-value", OTHER)
    own.check()
    lost.make_anew(("a-value", OTHER))
    own.check()
    lost.make_anew()
    with pytest.raises(RegistryMadeAnew, match="says no id"):
        own.check()

"""A producer releases compatible versions while one query runs: every record is enriched, from the first one on."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from pyspark.sql import SparkSession

from contracts.checks.compatibility import incompatibilities
from contracts.errors import SchemaIncompatible
from contracts.servers.registry import Registry
from spark.runtime.settings import SparkSettings
from tests.spark.examples import DISPATCHED, SCHEMA, Topics, a_dispatch, body, framed, schema_with
from tests.spark.live_query import Dimensions, events, running


def _status(*symbols: str) -> dict[str, Any]:
    kind = {"type": "enum", "name": "Status", "symbols": list(symbols), "default": "KNOWN"}
    return {"name": "status", "type": kind, "default": "KNOWN"}


CONTRACT = schema_with(_status("KNOWN", "LATE"))
"""What the query was started with: dispatches with an enum, which the contracts lack."""

VERSIONS: list[tuple[str, dict[str, Any] | None, str | None, dict[str, Any]]] = [
    # What changes, the field that is new, the one that goes; what the producer sends in it.
    ("a number is promoted", {"name": "weight_grams", "type": "long"}, None, {}),
    ("a field is added with a default", {"name": "gate", "type": "string", "default": "?"}, None, {"gate": "C70"}),
    ("an optional field is removed", None, "van_id", {}),
    (
        "a field is renamed",
        {"name": "haulier", "type": "string", "aliases": ["courier"]},
        "courier",
        {"haulier": "UA"},
    ),
    ("an enum gets a symbol", _status("KNOWN", "LATE", "DIVERTED"), None, {"status": "DIVERTED"}),
]
"""Each follows the one before it."""


def test_compatible_versions_are_decoded_from_their_first_record_on(
    spark: SparkSession,
    settings: SparkSettings,
    registry: Registry,
    topics: Topics,
    published: Dimensions,
    subtests: pytest.Subtests,
) -> None:
    catalog = dataclasses.replace(topics.catalog, _schemas={**topics.catalog._schemas, DISPATCHED: (SCHEMA, CONTRACT)})
    registry.register(topics.dispatched.subject, CONTRACT)
    usual = a_dispatch() | {"courier_name": "Umber Couriers Ltd.", "van_model": "F-824"}
    version = CONTRACT
    sent = a_dispatch(status="KNOWN")
    with running(spark, settings, registry, catalog, published) as query:
        for number, (change, added, removed, fields) in enumerate(VERSIONS):
            with subtests.test(change):
                before, version = version, _next(version, added, removed)
                assert incompatibilities([before, version], topics.dispatched.compatibility) == []
                schema_id = registry.register(topics.dispatched.subject, version)
                sent |= fields
                parcel = f"parcel-{number}"
                topics.send(framed(schema_id, body(sent | {"parcel_id": parcel}, version)))
                query.processAllAvailable()
                event, _, _ = events(topics)[-1]
                expected = usual | {"parcel_id": parcel}
                if "van_id" not in version:
                    expected |= {"van_id": None, "van_model": None}
                assert {name: event[name] for name in expected} == expected
        assert len(events(topics)) == len(VERSIONS)
        assert topics.read(topics.dispatched.dead_letter_topic) == []


def test_an_incompatible_version_is_refused_by_the_registry(registry: Registry, topics: Topics) -> None:
    registry.set_compatibility(topics.dispatched.subject, topics.dispatched.compatibility)
    without_default = schema_with({"name": "gate", "type": "string"})
    with pytest.raises(SchemaIncompatible, match=r"gate.*/fields/11"):
        registry.register(topics.dispatched.subject, without_default)


def _next(version: str, added: dict[str, Any] | None, removed: str | None) -> str:
    without = [removed] if removed is not None else []
    changed = schema_with(*([added] if added is not None else []), without=without, base=version)
    assert json.loads(changed) != json.loads(version)
    return changed

"""Records of the reference domain as the benchmarks send them: real departures, raw and enriched."""

from __future__ import annotations

import io
import itertools
import json
from collections.abc import Iterator
from typing import TypeAlias

import fastavro

from contracts import topics
from contracts.definitions.catalog import load_catalog
from contracts.events import FlightDeparted
from contracts.records.codec import Codec
from contracts.servers.registry import Registry
from contracts.settings import Settings
from services.departures.event import event_of
from services.nycflights.tables import read_table
from tests.system.oracle import enriched_flights

RAW = topics.FLIGHTS_DEPARTED.name
ENRICHED = topics.FLIGHTS_DEPARTED_ENRICHED.name
RAW_TABLE, TABLE = "flights_departed", "flights_departed_enriched"
"""Where the two land in the lake."""
DIMENSION, FURTHER_ROW = "airlines", "??,Airline {}"
"""One that the pipeline looks up in, and a row for its source file that no event asks for."""
SECOND_PIPELINE = "long_haul_departures"
"""A filter of the same raw records."""
PIPELINE, SERVICE = "departures_enriched", "departures"
"""Who makes the enriched ones, and who publishes the raw ones."""

Header: TypeAlias = tuple[str, str | bytes | None]
Record: TypeAlias = tuple[bytes, bytes, list[Header]]
"""Key, value and headers."""


def raw_values(schema_id: int) -> Iterator[tuple[bytes, bytes, bytes]]:
    """Key, value and ce_time of every departed flight."""
    schema = fastavro.parse_schema(json.loads(load_catalog().schema(RAW)))
    prefix = b"\x00" + schema_id.to_bytes(4, "big")
    for row in read_table("flights"):
        event = event_of(row)
        if isinstance(event, FlightDeparted):
            body = io.BytesIO()
            body.write(prefix)
            fastavro.schemaless_writer(body, schema, event.model_dump())
            yield event.flight_id.encode(), body.getvalue(), event.departed_at.isoformat().encode()


def raw_records(settings: Settings, count: int) -> list[Record]:
    """At most `count` departures, as `departures` publishes them."""
    constant = constant_headers(RAW, f"/services/{SERVICE}")
    return [
        (key, value, [("ce_id", key), ("ce_time", occurred_at), *constant])
        for key, value, occurred_at in itertools.islice(raw_values(contract_id(settings, RAW)), count)
    ]


def enriched_records(settings: Settings, count: int) -> list[Record]:
    """At most `count` enriched departures, as `live` writes them."""
    schema, schema_id = load_catalog().schema(ENRICHED), contract_id(settings, ENRICHED)
    codec = Codec({schema_id: schema}.__getitem__)
    versions = {"dimension_versions": {"airlines": 0, "airports": 0, "planes": 0}}
    constant = constant_headers(ENRICHED, f"/spark/{PIPELINE}")
    found: list[Record] = []
    for number, fields in enumerate(itertools.islice(enriched_flights().values(), count)):
        coordinate = f"{RAW}/{number % 4}/{number}".encode()
        headers = [("ce_id", coordinate), ("ce_time", fields["departed_at"].isoformat().encode()), *constant]
        found.append((fields["flight_id"].encode(), codec.encode(schema_id, fields | versions), list(headers)))
    return found


def constant_headers(topic: str, source: str) -> list[Header]:
    """The headers that all records of a topic have in common."""
    return [
        ("ce_type", topic.encode()),
        ("ce_source", source.encode()),
        ("ce_specversion", b"1.0"),
        ("content-type", b"application/avro"),
    ]


def contract_id(settings: Settings, topic: str) -> int:
    """The id of the schema that the topic's contract has; the registry may have a newer one. Raises LookupError if it lacks this one."""
    catalog = load_catalog()
    subject = catalog.topic(topic).subject
    with Registry(settings.registry) as registry:
        found = registry.id_of(subject, catalog.schema(topic))
    if found is None:
        raise LookupError(f"the registry lacks the schema that the contract has for {subject}: register the contracts")
    return found

"""Compares what a running stack holds with the oracle, by re-reading every hop with fresh clients.

`python -m tests.system.verify` does it for the stack that the environment's `HEADRACE_` variables name.
"""

from __future__ import annotations

import io
import json
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime
from typing import Any
from urllib.parse import unquote

import fastavro
import pyarrow.parquet as pq
from confluent_kafka import Consumer, Message, TopicPartition
from deltalake import DeltaTable

from contracts.errors import UnknownSchemaId
from contracts.records.dead_letter_headers import ERRORS
from contracts.records.headers import header_of, headers_of
from contracts.servers.registry import Registry
from contracts.servers.s3 import s3_client
from contracts.settings import Settings
from tests.system.expected_alerts import RULES
from tests.system.oracle import enriched_flights

RAW, ENRICHED, ALERTS = "flights.departed.v1", "flights.departed.enriched.v1", "alerts.raised.v1"


class Mismatch(AssertionError):
    """What is there differs from what should be there."""


def records(settings: Settings, topic: str) -> Iterator[Message]:
    """Every committed record of a topic, up to the end offsets at the start of the call."""
    consumer = Consumer(
        settings.kafka.client_config()
        | {
            "group.id": "verify",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    try:
        partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
        consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
        open_partitions = set(partitions)
        while open_partitions:
            message = consumer.poll(10)
            if message is None:
                raise Mismatch(f"{topic}: the broker sent nothing for 10 s")
            error = message.error()
            if error is None:
                yield message
            elif error.name() == "_PARTITION_EOF":
                open_partitions.discard(message.partition())
            else:
                raise Mismatch(f"{topic}: {error}")
    finally:
        consumer.close()


def coordinate(message: Message) -> str:
    return f"{message.topic()}/{message.partition()}/{message.offset()}"


def header(message: Message, name: str) -> str:
    value = header_of(headers_of(message), name)
    assert value is not None, f"{coordinate(message)}: no header {name}"
    return value.decode(errors="replace")


def decoded(message: Message, registry: Registry, schemas: dict[int, Any]) -> dict[str, Any]:
    """The record's Avro body, read with its own writer schema by fastavro alone."""
    body = message.value()
    assert body is not None
    assert body[0] == 0
    schema_id = int.from_bytes(body[1:5], "big")
    if schema_id not in schemas:
        schemas[schema_id] = fastavro.parse_schema(json.loads(registry.by_id(schema_id)))
    event = fastavro.schemaless_reader(io.BytesIO(body[5:]), schemas[schema_id], None)
    assert isinstance(event, dict)
    return event


def lake_rows(settings: Settings, table: str) -> Iterator[dict[str, Any]]:
    """Every row of a lake table's newest version. The files are read one by one, through boto3."""
    with closing(s3_client(settings.s3)) as client:
        prefix = f"lake/{table}"
        newest = DeltaTable(f"s3://{settings.s3.bucket}/{prefix}", storage_options=settings.s3.delta_options())
        for uri in newest.file_uris():
            path = uri.split(f"s3://{settings.s3.bucket}/", 1)[1]
            with closing(client.get_object(Bucket=settings.s3.bucket, Key=path)["Body"]) as body:
                content = body.read()
            partition = dict(part.split("=", 1) for part in unquote(path).split("/") if "=" in part)
            for row in pq.read_table(io.BytesIO(content)).to_pylist():
                yield row | partition


def verify(settings: Settings, until: datetime | None = None) -> dict[str, int]:
    """Raise Mismatch on the first hop that differs from the oracle; else the counts that were compared.

    `until`: the event time at which the replay ended; then the raw topic itself must be complete. None: what the raw
    topic holds is taken as what was sent.
    """
    with Registry(settings.registry) as registry:
        return _verify(settings, until, registry)


def _verify(settings: Settings, until: datetime | None, registry: Registry) -> dict[str, int]:
    schemas = dict[int, Any]()
    oracle = enriched_flights(until)
    raw = {coordinate(m): decoded(m, registry, schemas)["flight_id"] for m in records(settings, RAW)}
    if until is not None:
        _same("raw flights", Counter(raw.values()), Counter(oracle.keys()))

    enriched = [(header(m, "ce_id"), decoded(m, registry, schemas)) for m in records(settings, ENRICHED)]
    _same("enriched coordinates", Counter(at for at, _ in enriched), Counter(list(raw)))
    for at, event in enriched:
        _equal(f"enriched {at}", event, oracle[raw[at]])

    rows = list(lake_rows(settings, "flights_departed_enriched"))
    _same("coordinates in the lake", Counter(row["coordinate"] for row in rows), Counter(list(raw)))
    for row in rows:
        _equal(
            f"lake {row['coordinate']}",
            row | {"flight_date": str(row["flight_date"])},
            _partitioned(oracle[raw[row["coordinate"]]]),
        )

    raised = [decoded(m, registry, schemas) for m in records(settings, ALERTS)]
    expected = expected_alerts(settings, registry, schemas)
    _same("alerts", Counter((a["rule"], a["coordinate"]) for a in raised), expected)
    assert len({str(a["alert_id"]) for a in raised}) == len(raised)
    return {"raw": len(raw), "enriched": len(enriched), "lake": len(rows), "alerts": len(raised)}


def expected_alerts(settings: Settings, registry: Registry, schemas: dict[int, Any]) -> Counter[tuple[str, str]]:
    """(rule, coordinate) of every match, by an evaluation of its own over what the topics hold."""
    found: Counter[tuple[str, str]] = Counter()
    letters = {header(m, "ce_id") for m in records(settings, f"{ALERTS}.dlq") if _by_alerting(m)}
    for topic, rules in RULES.items():
        for message in records(settings, topic):
            if coordinate(message) in letters:
                continue  # by rights or not, which the audit finds out
            try:
                event = decoded(message, registry, schemas)
            except (ValueError, LookupError, ArithmeticError, EOFError, UnknownSchemaId):
                continue  # alerting decodes only what passes a threshold; of this nothing can be told
            at = header(message, "ce_id") if topic == ENRICHED else coordinate(message)
            found.update((rule, at) for rule, matches in rules.items() if matches(event))
    return found


def _by_alerting(letter: Message) -> bool:
    return header_of(headers_of(letter), f"{ERRORS}connector.name") == b"alerting"


def _partitioned(event: dict[str, Any]) -> dict[str, Any]:
    return event | {"flight_date": str(event["flight_date"])}


def _equal(what: str, found: dict[str, Any], expected: dict[str, Any]) -> None:
    different = {name: (found.get(name), value) for name, value in expected.items() if found.get(name) != value}
    if different:
        raise Mismatch(f"{what}: (found, expected) differ: {different}")


def _same(what: str, found: Counter[Any], expected: Counter[Any]) -> None:
    if found != expected:
        missing, extra = expected - found, found - expected
        raise Mismatch(
            f"{what}: {missing.total()} missing, e.g. {list(missing)[:3]}; {extra.total()} too many, e.g. {list(extra)[:3]}"
        )


if __name__ == "__main__":
    try:
        print(verify(Settings()))
    except Mismatch as mismatch:
        sys.exit(str(mismatch))

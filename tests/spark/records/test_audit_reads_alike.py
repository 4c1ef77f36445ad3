"""What `live` and `lake` take for an event, the audit takes for one."""

from __future__ import annotations

import json

import pytest
from pyspark.sql import SparkSession

from services.audit.records.decoding import Decoding
from spark.records.decode import decode
from spark.records.schemas import WriterSchemas
from tests.audit.bodies import records
from tests.contracts.records.test_codec import a_record
from tests.spark.examples import framed, raw_frame


def test_spark_takes_the_bodies_that_the_audit_takes(spark: SparkSession) -> None:
    by_schema: dict[str, list[tuple[bytes, bool]]] = {}
    for schema, body, is_event in records():
        by_schema.setdefault(schema, []).append((body, is_event))
    for schema, bodies in by_schema.items():
        raw = raw_frame(spark, *(framed(7, body) for body, _ in bodies))
        rows = decode(raw, WriterSchemas("s", schema, {7: schema})).orderBy("record.offset").collect()
        found = [row.reason is None for row in rows]
        assert found == [is_event for _, is_event in bodies], json.loads(schema)["fields"][1]


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("int", b"\x82\x80\x80\x80\x7f"),
        ("int", b"\x84\x80\x80\x80\x10"),
        ("long", b"\x82" + b"\x80" * 8 + b"\x7f"),
        ("boolean", b"\x02"),
    ],
)
def test_a_number_of_too_many_bits_is_cut_alike(spark: SparkSession, kind: str, body: bytes) -> None:
    schema = a_record(kind, "string")
    value, read = framed(7, body + b"\x02x"), Decoding.of(schema, schema)
    (row,) = decode(raw_frame(spark, value), WriterSchemas("s", schema, {7: schema})).collect()
    assert read is not None
    event = read.event(value)
    assert event is not None
    assert row.event.asDict() == event.fields

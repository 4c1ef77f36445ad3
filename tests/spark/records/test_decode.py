from __future__ import annotations

import hashlib
import json
from datetime import UTC, date
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from contracts.records import limits
from spark.records.dead_letters import kept
from spark.records.decode import decode
from spark.records.record_size import record_size
from spark.records.schemas import WriterSchemas
from tests.spark.examples import DISPATCHED, RAW, SCHEMA, a_dispatch, body, framed, raw_frame, schema_with

SCHEMAS = WriterSchemas(f"{DISPATCHED}-value", SCHEMA, {7: SCHEMA})


def decoded(spark: SparkSession, *values: bytes | None, schemas: WriterSchemas = SCHEMAS) -> list[Row]:
    return decode(raw_frame(spark, *values), schemas).orderBy("record.offset").collect()


def test_an_event_comes_out_with_its_fields_types_and_coordinate(spark: SparkSession) -> None:
    (row,) = decoded(spark, framed(7, body(a_dispatch())))
    expected = a_dispatch()
    assert row.event.posted_on == date(2013, 1, 1)
    for name in ("due_at", "dispatched_at"):
        # Python shows Spark's instants in local time, without saying so.
        assert getattr(row.event, name).astimezone(UTC) == expected.pop(name)
    assert {name: row.event[name] for name in expected} == expected
    assert (row.reason, row.error) == (None, None)
    assert (row.record.topic, row.record.partition, row.record.offset) == (DISPATCHED, 0, 0)
    assert bytes(row.record.key) == b"key"
    assert [(header.key, bytes(header.value)) for header in row.record.headers] == [("ce_id", b"the-producer's-own")]


SECOND_VERSIONS: list[tuple[str, dict[str, Any], tuple[str, ...], str, Any]] = [
    ("int becomes long", {"name": "weight_grams", "type": "long"}, (), "weight_grams", 1400),
    ("a field is added with a default", {"name": "gate", "type": "string", "default": "?"}, (), "gate", "?"),
    ("a field is removed", {"name": "courier", "type": "string"}, ("van_id",), "courier", "UA"),
]


@pytest.mark.parametrize(
    ("change", "field", "without", "name", "value"), SECOND_VERSIONS, ids=[c[0] for c in SECOND_VERSIONS]
)
def test_records_of_two_schema_versions_come_out_in_the_newer_one(
    spark: SparkSession, change: str, field: dict[str, Any], without: tuple[str, ...], name: str, value: Any
) -> None:
    newer = schema_with(field, without=without)
    schemas = WriterSchemas(SCHEMAS.subject, newer, {7: SCHEMA, 9: newer})
    newer_event = a_dispatch(**{name: value})
    rows = decoded(spark, framed(7, body(a_dispatch())), framed(9, body(newer_event, newer)), schemas=schemas)
    assert [row.reason for row in rows] == [None, None]
    assert [row.event[name] for row in rows] == [value, value]


def test_a_newer_writer_than_the_reader_is_read_too(spark: SparkSession) -> None:
    newer = schema_with({"name": "gate", "type": ["null", "string"], "default": None})
    schemas = WriterSchemas(SCHEMAS.subject, SCHEMA, {7: SCHEMA, 9: newer})
    (row,) = decoded(spark, framed(9, body(a_dispatch(gate="C70"), newer)), schemas=schemas)
    assert row.event.parcel_id == a_dispatch()["parcel_id"]
    assert "gate" not in row.event


WEIGHT = {"name": "weight_grams", "type": "long"}


@pytest.mark.parametrize("value", [2**31 - 1, -(2**31)])
def test_a_number_that_a_newer_version_widened_is_taken_back_where_it_fits(spark: SparkSession, value: int) -> None:
    newer = schema_with(WEIGHT)
    schemas = WriterSchemas(SCHEMAS.subject, SCHEMA, {7: SCHEMA, 9: newer})
    values = [framed(7, body(a_dispatch())), framed(9, body(a_dispatch(weight_grams=value), newer))]
    rows = decoded(spark, *values, schemas=schemas)
    assert [(row.event.weight_grams, row.reason) for row in rows] == [(1400, None), (value, None)]


@pytest.mark.parametrize(
    ("kind", "value"), [("long", 2**31), ("double", 1.5), ("double", float("nan")), ("double", 1e300)]
)
def test_a_number_that_does_not_fit_any_more_is_undecodable_and_never_cut(
    spark: SparkSession, kind: str, value: float
) -> None:
    newer = schema_with({"name": "weight_grams", "type": kind})
    schemas = WriterSchemas(SCHEMAS.subject, SCHEMA, {9: newer})
    (row,) = decoded(spark, framed(9, body(a_dispatch(weight_grams=value), newer)), schemas=schemas)
    assert (row.event, row.reason) == (None, "Undecodable")


def test_a_field_that_a_newer_version_renamed_is_found_by_its_alias(spark: SparkSession) -> None:
    newer = schema_with({"name": "haulier", "type": "string", "aliases": ["courier"]}, without=["courier"])
    schemas = WriterSchemas(SCHEMAS.subject, SCHEMA, {9: newer})
    (row,) = decoded(spark, framed(9, body(a_dispatch(haulier="UA"), newer)), schemas=schemas)
    assert (row.event.courier, row.reason) == ("UA", None)


GOOD = framed(7, body(a_dispatch()))
BAD: dict[str, tuple[bytes | None, str]] = {
    "tombstone": (None, "EmptyBody"),
    "empty": (b"", "EmptyBody"),
    "one byte": (b"\x00", "TooShort"),
    "header alone": (framed(7, b""), "TooShort"),
    "json": (json.dumps({"parcel_id": "UA1"}).encode(), "WrongMagic"),
    "unknown id": (framed(8, body(a_dispatch())), "UnknownSchemaId"),
    "truncated": (GOOD[:-3], "Undecodable"),
    "text that is no UTF-8": (GOOD.replace(b"N14228", b"N142\xff8"), "Undecodable"),
    "random": (framed(7, bytes(range(255, 0, -1))), "Undecodable"),
    # zigzag varint of 2^31 - 1: "a string of 2 GiB follows"
    "claims two gibibytes": (framed(7, b"\xfe\xff\xff\xff\x0f" + b"x" * 20), "Undecodable"),
}


def test_every_bad_record_gets_its_reason_and_good_ones_beside_it_pass(spark: SparkSession) -> None:
    values = [value for value, _ in BAD.values()]
    rows = decoded(spark, GOOD, *values, GOOD)
    assert [row.reason for row in rows] == [None, *[reason for _, reason in BAD.values()], None]
    for value, row in zip(values, rows[1:-1], strict=True):
        assert row.event is None
        assert row.error
        assert row.record.value == value
    assert "8" in rows[1 + list(BAD).index("unknown id")].error


def test_without_any_schema_every_framed_record_is_of_an_unknown_one(spark: SparkSession) -> None:
    rows = decoded(spark, GOOD, schemas=WriterSchemas(SCHEMAS.subject, SCHEMA, {}))
    assert [row.reason for row in rows] == ["UnknownSchemaId"]


PLACE = {"type": "record", "name": "Place", "fields": [{"name": "name", "type": "string"}]}
NESTED: dict[str, tuple[Any, Any]] = {
    "optional": (["null", "string"], "hello"),
    "array": ({"type": "array", "items": "string"}, ["fine", "hello"]),
    "array of optional": ({"type": "array", "items": ["null", "string"]}, [None, "hello"]),
    "array of records": (
        {"type": "array", "items": {"type": "record", "name": "Item", "fields": [{"name": "text", "type": "string"}]}},
        [{"text": "fine"}, {"text": "hello"}],
    ),
    "key of a map": ({"type": "map", "values": "long"}, {"hello": 1}),
    "value of a map": ({"type": "map", "values": "string"}, {"fine": "hello"}),
    "record": (
        {"type": "record", "name": "Inner", "fields": [{"name": "inner", "type": "string"}]},
        {"inner": "hello"},
    ),
    "one of several": (["null", "long", "string"], "hello"),
    "named types used again": (
        {
            "type": "record",
            "name": "Trip",
            "namespace": "of.its.own",
            "fields": [
                {"name": "start", "type": PLACE},
                {"name": "stops", "type": {"type": "array", "items": "of.its.own.Place"}},
                {"name": "end", "type": ["null", "Place"]},
            ],
        },
        {"start": {"name": "fine"}, "stops": [{"name": "fine"}], "end": {"name": "hello"}},
    ),
    "items of a named type used again": (
        {
            "type": "record",
            "name": "Trip",
            "fields": [
                {"name": "start", "type": PLACE},
                {"name": "stops", "type": {"type": "array", "items": "Place"}},
            ],
        },
        {"start": {"name": "fine"}, "stops": [{"name": "fine"}, {"name": "hello"}]},
    ),
}


@pytest.mark.parametrize("where", NESTED)
def test_text_that_is_no_utf_8_is_found_wherever_it_is(spark: SparkSession, where: str) -> None:
    kind, value = NESTED[where]
    schema = schema_with({"name": "extra", "type": kind})
    schemas = WriterSchemas(SCHEMAS.subject, schema, {7: schema})
    good = framed(7, body(a_dispatch(extra=value), schema))
    rows = decoded(spark, good, good.replace(b"hello", b"hel\xff\xfe"), schemas=schemas)
    assert [row.reason for row in rows] == [None, "Undecodable"]
    assert rows[1].error == "a text in the body is not UTF-8"


def test_halves_of_a_letter_in_two_texts_are_no_letter(spark: SparkSession) -> None:
    schema = schema_with({"name": "extra", "type": {"type": "array", "items": "string"}})
    value = framed(7, body(a_dispatch(extra=["one", "two"]), schema))
    halves = value.replace(b"one", b"on\xc3").replace(b"two", b"\xa9wo")
    (row,) = decoded(spark, halves, schemas=WriterSchemas(SCHEMAS.subject, schema, {7: schema}))
    assert row.reason == "Undecodable"


ODD_HEADERS: list[tuple[str, bytes | None]] = [
    ("ce_id", b"\xff" * 300),
    ("é", None),
    ("", b""),
    ("ce_redrivenfrom", b"x" * 70),
]


@pytest.mark.parametrize(
    "headers",
    [
        None,
        [],
        ODD_HEADERS,
        [("ce_redrivenfrom", b"x" * 500)],
        [("ce_redrivenfrom", b"")] * 9,
        [("ce_redrivenfrom", None)],
    ],
)
def test_a_record_is_as_large_here_as_everywhere(
    spark: SparkSession, headers: list[tuple[str, bytes | None]] | None
) -> None:
    for key, value in ((b"key", b"v" * limits.RAW_BYTES), (None, None)):
        raw = spark.createDataFrame([(key, value, headers)], "key binary, value binary, " + RAW.split("timestamp,")[1])
        (row,) = raw.select(record_size(F.struct("key", "value", "headers"))).collect()
        assert row[0] == limits.record_size(key, value, headers or [])


def test_a_record_at_its_topics_limit_is_an_event_and_a_larger_one_is_too_long(spark: SparkSession) -> None:
    most = "x" * (limits.RAW_BYTES - len(b"key" + framed(7, body(a_dispatch(van_id="")))) - 2)
    values = [framed(7, body(a_dispatch(van_id=text))) for text in (most, most + "x", most + "x" * 200_000)]
    fits, too_long, largest = decoded(spark, *values)
    assert (fits.reason, fits.event.van_id) == (None, most)
    assert (too_long.reason, too_long.event, bytes(too_long.record.value)) == ("TooLong", None, values[1])
    assert too_long.error == "key and value have 900001 bytes, and those of its topic at most 900000"
    assert (largest.reason, bytes(largest.record.value)) == ("TooLong", values[2])


def test_of_a_record_larger_than_a_dead_letter_may_be_a_stump_is_kept(spark: SparkSession) -> None:
    values = [b"x" * 1_000_000, b"x" * 1_100_000]
    decoded = decode(raw_frame(spark, *values), SCHEMAS).select(kept(F.col("record")).alias("record"))
    whole, stump = [row.record for row in decoded.orderBy("record.offset").collect()]
    assert (whole.key, bytes(whole.value), len(whole.headers), whole.stump) == (b"key", values[0], 1, None)
    assert (stump.topic, stump.offset, stump.key, stump.value, stump.headers) == (DISPATCHED, 1, None, None, None)
    assert (stump.stump.bytes, stump.stump.sha256) == (1_100_032, hashlib.sha256(values[1]).hexdigest())


def test_a_derived_topics_records_may_be_larger_by_what_is_added(spark: SparkSession) -> None:
    schemas = WriterSchemas(SCHEMAS.subject, SCHEMA, {7: SCHEMA}, most_bytes=limits.DERIVED_BYTES)
    (row,) = decoded(spark, framed(7, body(a_dispatch(van_id="x" * limits.RAW_BYTES))), schemas=schemas)
    assert row.reason is None

"""What goes through the codec comes back; what is no event is named, and costs no more than its size."""

from __future__ import annotations

import io
import json
import time
import tracemalloc
from decimal import Decimal
from typing import Any

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.errors import (
    DecodeError,
    EncodeError,
    ForeignBody,
    Malformed,
    RegistryUnavailable,
    TooLong,
    TrailingBytes,
    Truncated,
    UnknownSchemaId,
    Unresolvable,
    WrongMagic,
)
from contracts.records.codec import Codec
from tests import sample
from tests.contracts.records.avro_values import a_number, values

SCHEMA_ID = 7
FRAME = bytes([0, 0, 0, 0, SCHEMA_ID])

CATALOG = sample.catalog()
SCHEMAS = {
    f"{topic}/{number}": schema
    for topic in CATALOG.topics
    for number, schema in enumerate(CATALOG.schemas(topic), start=1)
}
EVERY_SCHEMA = pytest.mark.parametrize("schema", SCHEMAS.values(), ids=SCHEMAS.keys())


def parsed(schema: str) -> Any:
    return fastavro.parse_schema(json.loads(schema))


def a_codec(schema: str, *, reader_schema: str | None = None) -> Codec:
    return Codec({SCHEMA_ID: schema}.__getitem__, reader_schema=reader_schema)


def a_record(*types: Any) -> str:
    fields = [{"name": f"f{number}", "type": each} for number, each in enumerate(types)]
    return json.dumps({"type": "record", "name": "R", "fields": fields})


def a_body(schema: str, fields: dict[str, Any]) -> bytes:
    return a_codec(schema).encode(SCHEMA_ID, fields)


PAIR = a_record("string", ["null", "int"])
PAIR_BODY = a_body(PAIR, {"f0": "water", "f1": 42})


# What goes in comes out.


@EVERY_SCHEMA
@given(data=st.data())
def test_every_event_of_every_schema_comes_back(schema: str, data: st.DataObject) -> None:
    fields = data.draw(values(parsed(schema)))
    body = a_body(schema, fields)
    assert a_codec(schema).decode(body) == fields
    assert a_codec(schema, reader_schema=schema).decode(body) == fields


@given(data=st.data())
def test_types_that_no_topic_uses_yet_come_back_too(data: st.DataObject) -> None:
    schema = a_record(
        {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2},
        {"type": "array", "items": {"type": "record", "name": "S", "fields": [{"name": "x", "type": "boolean"}]}},
        {"type": "map", "values": ["null", {"type": "array", "items": "double"}]},
        ["null", "float", "string"],
    )
    fields = data.draw(values(parsed(schema)))
    assert a_codec(schema).decode(a_body(schema, fields)) == fields


@given(text=st.text(), number=st.none() | st.integers(-(2**31), 2**31 - 1))
def test_a_body_is_what_the_wire_format_says(text: str, number: int | None) -> None:
    expected = io.BytesIO()
    fastavro.schemaless_writer(expected, parsed(PAIR), {"f0": text, "f1": number})
    assert a_body(PAIR, {"f0": text, "f1": number}) == FRAME + expected.getvalue()


# Each kind of nonsense has its name.


@EVERY_SCHEMA
@settings(max_examples=20)
@given(data=st.data())
def test_every_beginning_of_a_body_is_truncated(schema: str, data: st.DataObject) -> None:
    codec, body = a_codec(schema), a_body(schema, data.draw(values(parsed(schema))))
    for length in range(len(body)):
        with pytest.raises(Truncated):
            codec.decode(body[:length])


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"", Truncated),
        (FRAME[:3], Truncated),
        (FRAME, Truncated),
        (FRAME + a_number(2**60) + b"water", Truncated),
        (b'{"f0": "water", "f1": 42}', ForeignBody),
        (b"\n<event/>", ForeignBody),
        (b"Obj\x01\x04\x14avro.codec", ForeignBody),
        (b"\x01" + PAIR_BODY[1:], WrongMagic),
        (b"\x80\x02}q\x00.", WrongMagic),
        (PAIR_BODY + b"\x00", TrailingBytes),
        (PAIR_BODY + PAIR_BODY, TrailingBytes),
        (PAIR_BODY + b" " * 2**20, TooLong),
        (FRAME + a_number(-2) + b"water\x00", Malformed),
        (FRAME + a_number(2) + b"\xff\xfe\x00", Malformed),
        (FRAME + a_number(0) + a_number(2), Malformed),
        (FRAME + a_number(0) + a_number(-1), Malformed),
        (FRAME + a_number(0) + a_number(1) + a_number(2**40), Malformed),
        (FRAME + a_number(0) + a_number(1) + b"\xff" * 11, Malformed),
    ],
)
def test_each_kind_of_nonsense_has_its_own_error(body: bytes, error: type[DecodeError]) -> None:
    with pytest.raises(DecodeError) as raised:
        a_codec(PAIR).decode(body)
    assert raised.type is error


def test_a_value_beyond_its_logical_type_is_malformed() -> None:
    schema = a_record({"type": "long", "logicalType": "timestamp-millis"})
    with pytest.raises(Malformed):
        a_codec(schema).decode(FRAME + a_number(2**62))


@pytest.mark.parametrize(
    ("value", "size", "is_one"),
    [
        (999_999, 3, True),
        (-999_999, 3, True),
        (5, 40, True),
        (1_000_000, 3, False),
        (-1_000_000, 3, False),
        (2**63, 9, False),
    ],
)
def test_a_decimal_with_more_digits_than_its_precision_is_malformed_and_never_rounded(
    value: int, size: int, is_one: bool
) -> None:
    settings = {"logicalType": "decimal", "precision": 6, "scale": 2}
    raw = value.to_bytes(size, "big", signed=True)
    for kind, field in (
        ({"type": "bytes"}, a_number(size) + raw),
        ({"type": "fixed", "name": "F", "size": size}, raw),
    ):
        codec = a_codec(a_record(kind | settings))
        if is_one:
            assert codec.decode(FRAME + field) == {"f0": Decimal(value).scaleb(-2)}
        else:
            with pytest.raises(Malformed, match="more than 6 digits"):
                codec.decode(FRAME + field)


@pytest.mark.parametrize(
    ("kind", "field"),
    [
        ({"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}, b"\x00"),
        ("int", b"\x82\x80\x80\x80\x80\x00"),
        ({"type": "enum", "name": "E", "symbols": ["a", "b"]}, b"\x82\x80\x80\x80\x80\x00"),
        (["null", "int"], b"\x80\x80\x80\x80\x80\x00"),
    ],
)
def test_what_javas_decoder_does_not_take_is_malformed(kind: Any, field: bytes) -> None:
    with pytest.raises(Malformed):
        a_codec(a_record(kind)).decode(FRAME + field)


@pytest.mark.parametrize("error", [UnknownSchemaId("no such id"), RegistryUnavailable("no answer")])
def test_what_the_lookup_of_an_id_raises_passes_through(error: Exception) -> None:
    def lookup(schema_id: int) -> str:
        raise error

    with pytest.raises(type(error)):
        Codec(lookup).decode(PAIR_BODY)


@EVERY_SCHEMA
@given(data=st.data())
def test_a_damaged_body_is_an_event_or_a_decode_error(schema: str, data: st.DataObject) -> None:
    body = bytearray(a_body(schema, data.draw(values(parsed(schema)))))
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(5, len(body) - 1))] = data.draw(st.integers(0, 255))
    try:
        a_codec(schema, reader_schema=schema).decode(bytes(body))
    except DecodeError:
        pass


# Readers and writers of different versions.


def test_an_older_event_gets_the_newer_fields_defaults() -> None:
    newer = json.loads(PAIR)
    newer["fields"][1]["type"] = ["null", "long"]
    newer["fields"].append({"name": "f2", "type": "string", "default": "new"})
    fields = a_codec(PAIR, reader_schema=json.dumps(newer)).decode(PAIR_BODY)
    assert fields == {"f0": "water", "f1": 42, "f2": "new"}


def test_a_newer_event_loses_the_fields_that_the_reader_lacks() -> None:
    assert a_codec(PAIR, reader_schema=a_record("string")).decode(PAIR_BODY) == {"f0": "water"}


@pytest.mark.parametrize(
    ("reader", "writer", "value"),
    [
        ("int", "long", -(1 << 31)),
        ("int", "double", 42),
        (["null", "long"], ["null", "double"], None),
        ("long", "float", 1 << 24),
        ("float", "double", 0.5),
        ("int", ["null", "long"], 7),
    ],
)
def test_a_newer_events_widened_number_is_taken_back(reader: Any, writer: Any, value: float | None) -> None:
    body = a_body(a_record(writer), {"f0": value})
    assert a_codec(a_record(writer), reader_schema=a_record(reader)).decode(body) == {"f0": value}


@pytest.mark.parametrize(
    ("reader", "writer", "value"),
    [
        ("int", "long", 1 << 31),
        ("int", "double", 0.5),
        ("long", "double", 1e19),
        ("long", "double", float("nan")),
        ("int", "double", float("inf")),
        ("float", "double", 1e300),
    ],
)
def test_a_widened_number_that_does_not_fit_is_never_cut(reader: str, writer: str, value: float) -> None:
    body = a_body(a_record(writer), {"f0": value})
    with pytest.raises(Unresolvable, match=f"field f0: .* does not fit {reader}"):
        a_codec(a_record(writer), reader_schema=a_record(reader)).decode(body)


def test_a_newer_events_renamed_field_is_found_by_its_alias() -> None:
    newer = json.loads(PAIR)
    newer["fields"][0] |= {"name": "liquid", "aliases": ["f0"]}
    body = a_body(json.dumps(newer), {"liquid": "water", "f1": 42})
    assert a_codec(json.dumps(newer), reader_schema=PAIR).decode(body) == {"f0": "water", "f1": 42}


@pytest.mark.parametrize("reader", [a_record("int"), a_record("string", "int", "int"), SCHEMAS["depots.observed.v1/1"]])
def test_an_event_that_the_reader_cannot_take_is_unresolvable(reader: str) -> None:
    with pytest.raises(Unresolvable):
        a_codec(PAIR, reader_schema=reader).decode(PAIR_BODY)


@pytest.mark.parametrize("writer", ['{"type": "object"}', '"string"', "syntax = 'proto3';"])
def test_an_id_of_something_that_is_no_avro_record_is_unresolvable(writer: str) -> None:
    with pytest.raises(Unresolvable):
        a_codec(writer).decode(PAIR_BODY)


# Encoding is strict.


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"f0": "water"}, "f1"),
        ({"f1": 42}, "f0"),
        ({"f0": "water", "f1": 42, "f2": 0}, "f2"),
        ({"f0": 5, "f1": 42}, "f0"),
        ({"f0": "water", "f1": 1.5}, "f1"),
        ({"f0": "water", "f1": True}, "f1"),
        ({"f0": "water", "f1": "42"}, "f1"),
        ({"f0": "water", "f1": 2**31}, "f1"),
        ({"f0": None, "f1": 42}, "f0"),
    ],
)
def test_an_event_that_does_not_fit_its_schema_is_refused_by_its_field(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(EncodeError, match=field):
        a_body(PAIR, fields)


def test_an_event_larger_than_the_limit_is_refused() -> None:
    with pytest.raises(TooLong):
        a_body(PAIR, {"f0": "x" * 2**20, "f1": None})


# A hostile body costs no more than its size allows.

EMPTY = {"type": "record", "name": "Empty", "fields": []}
TINY = {"type": "record", "name": "Tiny", "fields": [{"name": "x", "type": "boolean"}]}
WIDE = {"type": "record", "name": "Wide", "fields": [{"name": f"n{i}", "type": "null"} for i in range(50)]}
TREE = {"type": "record", "name": "Tree", "fields": [{"name": "left", "type": ["null", "Tree"]}]}
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}

LARGE = 2**20 - 100
ENDLESS = a_number(2**60)


def an_array(items: Any) -> str:
    return a_record({"type": "array", "items": items})


def a_map(inner: Any) -> str:
    return a_record({"type": "map", "values": inner})


def blocks_of_one(item: bytes) -> bytes:
    return (a_number(1) + item) * (LARGE // (1 + len(item))) + b"\x00"


def one_block(item: bytes, size: int = LARGE) -> bytes:
    count = size // max(len(item), 1)
    return a_number(count) + item * count + b"\x00"


HOSTILE = {
    "endless string": (a_record("string"), ENDLESS + b"x" * LARGE),
    "endless bytes": (a_record("bytes"), ENDLESS + b"x"),
    "negative length": (a_record("string"), a_number(-1) + b"x" * LARGE),
    "endless array": (an_array("string"), ENDLESS + b"\x00" * LARGE),
    "endless array of doubles": (an_array("double"), ENDLESS + b"\x00" * LARGE),
    "endless array of nulls": (an_array("null"), ENDLESS + b"\x00"),
    "negative endless array of nulls": (an_array("null"), a_number(-(2**60)) + b"\x00" * 2),
    "the most negative count": (an_array("null"), a_number(-(2**63)) + b"\x00" * 2),
    "many blocks of nulls": (an_array("null"), a_number(30_000) * 300_000 + b"\x00"),
    "endless array of empty records": (an_array(EMPTY), ENDLESS + b"\x00"),
    "many empty records": (an_array(EMPTY), one_block(b"", 2**20)),
    "many wide empty records": (an_array(WIDE), one_block(b"", 2**20)),
    "endless array of arrays": (an_array({"type": "array", "items": "null"}), one_block(ENDLESS + b"\x00")),
    "many empty arrays": (an_array({"type": "array", "items": "null"}), one_block(b"\x00")),
    "many tiny records": (an_array(TINY), one_block(b"\x01")),
    "many small numbers": (an_array("long"), one_block(a_number(-40))),
    "many large numbers": (an_array("long"), one_block(a_number(2**62))),
    "many instants": (an_array(MILLIS), one_block(a_number(1))),
    "many decimals": (an_array(DECIMAL), one_block(b"\x02\x07")),
    "many short texts": (an_array("string"), one_block(b"\x04ab")),
    "many empty texts": (an_array("string"), one_block(b"\x00")),
    "some short texts": (an_array("string"), one_block(b"\x04ab", 2**15)),
    "some numbers": (an_array("long"), one_block(a_number(-40), 2**14)),
    "some tiny records": (an_array(TINY), one_block(b"\x01", 2**11)),
    "blocks of one": (an_array("string"), blocks_of_one(b"\x04ab")),
    "endless map": (a_map("null"), ENDLESS + b"\x00" * LARGE),
    "many entries": (a_map("null"), one_block(b"\x08abcd")),
    "some entries": (a_map("null"), b"".join([a_number(4096), *(b"\x08%04d" % i for i in range(4096)), b"\x00"])),
    "a long text with one wide letter": (
        a_record("string"),
        a_number(LARGE) + b"a" * (LARGE - 4) + "\U0001f40d".encode(),
    ),
    "a long text of wide letters": (
        a_record("string"),
        a_number(LARGE // 4 * 4) + "\U0001f40d".encode() * (LARGE // 4),
    ),
    "a decimal of a megabyte": (a_record(DECIMAL), a_number(LARGE) + b"\x7f" * LARGE),
    "a uuid of a megabyte": (a_record({"type": "string", "logicalType": "uuid"}), a_number(LARGE) + b"a" * LARGE),
    "a deep tree": (json.dumps(TREE), b"\x02" * LARGE + b"\x00"),
    "an endless number": (a_record("long"), b"\xff" * LARGE),
}


@pytest.mark.parametrize(("schema", "body"), HOSTILE.values(), ids=HOSTILE.keys())
@pytest.mark.parametrize("resolving", [False, True], ids=["as written", "resolved"])
def test_a_hostile_body_takes_no_more_than_16_times_its_size_and_a_mebibyte(
    schema: str, body: bytes, resolving: bool
) -> None:
    codec = a_codec(schema, reader_schema=_with_defaults(schema) if resolving else None)
    try:
        codec.decode(FRAME)  # compiles the schema, which is not the body's doing
    except DecodeError:
        pass
    body = FRAME + body
    tracemalloc.start()
    began = time.process_time()
    try:
        value = codec.decode(body)
        del value
    except DecodeError:
        pass
    finally:
        seconds = time.process_time() - began
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak <= 16 * len(body) + 2**20
    assert seconds < 10


def test_an_honest_collection_of_thousands_is_no_hostile_body() -> None:
    schema = a_record({"type": "array", "items": "string"}, {"type": "map", "values": "long"})
    fields = {"f0": [f"item {number}" for number in range(5000)], "f1": {str(number): number for number in range(2000)}}
    assert a_codec(schema).decode(a_body(schema, fields)) == fields


def _with_defaults(schema: str) -> str:
    """A reader's schema that adds fields to every record."""
    added = [{"name": f"added{i}", "type": "string", "default": "filled in by the reader"} for i in range(20)]

    def widened(node: Any) -> Any:
        if isinstance(node, list):
            return [widened(each) for each in node]
        if not isinstance(node, dict):
            return node
        result = {key: widened(value) for key, value in node.items()}
        if node.get("type") == "record":
            result["fields"] = [*result["fields"], *added]
        return result

    return json.dumps(widened(json.loads(schema)))


@settings(deadline=None, max_examples=200)
@given(body=st.binary(max_size=2000))
def test_random_bytes_stay_within_bounds_under_every_kind_of_schema(body: bytes) -> None:
    for schema in (an_array(WIDE), a_map({"type": "array", "items": "null"}), json.dumps(TREE), an_array(DECIMAL)):
        try:
            a_codec(schema).decode(FRAME + body)
        except DecodeError:
            pass

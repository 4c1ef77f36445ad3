"""Bodies at the edges of what Avro's decoders take, and whether Spark's takes them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tests.contracts.records.avro_values import a_number

DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}
LARGE_DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 2}
FIXED_DECIMAL = {"type": "fixed", "name": "F", "size": 4, "logicalType": "decimal", "precision": 6, "scale": 2}
NULLS = {"type": "array", "items": "null"}


def text(value: bytes) -> bytes:
    """As Avro writes a text, or bytes."""
    return a_number(len(value)) + value


def unscaled(value: int, size: int) -> bytes:
    """A decimal in so many bytes."""
    return text(value.to_bytes(size, "big", signed=True))


# The field's type, its bytes, whether the record is one.
BODIES: list[tuple[Any, bytes, bool]] = [
    (DECIMAL, unscaled(999_999, 3), True),
    (DECIMAL, unscaled(-999_999, 3), True),
    (DECIMAL, unscaled(1_000_000, 3), False),
    (DECIMAL, unscaled(-1_000_000, 3), False),
    (DECIMAL, unscaled(2**30, 4), False),
    (DECIMAL, unscaled(5, 100), True),
    (DECIMAL, unscaled(-5, 40), True),
    (DECIMAL, text(b""), False),
    (LARGE_DECIMAL, unscaled(10**20 - 1, 9), True),
    (LARGE_DECIMAL, unscaled(10**20, 9), False),
    (LARGE_DECIMAL, unscaled(2**400, 60), False),
    (FIXED_DECIMAL, (999_999).to_bytes(4, "big"), True),
    (FIXED_DECIMAL, (1_000_000).to_bytes(4, "big"), False),
    ("int", b"\x82\x80\x80\x80\x00", True),
    ("int", b"\x82\x80\x80\x80\x80\x00", False),
    ("int", b"\x82\x80\x80\x80\x7f", True),
    ("long", b"\x82" + b"\x80" * 8 + b"\x7f", True),
    ("boolean", b"\x02", True),
    ("long", b"\x82" + b"\x80" * 8 + b"\x00", True),
    ("long", b"\x82" + b"\x80" * 9 + b"\x00", False),
    ({"type": "enum", "name": "E", "symbols": ["a", "b"]}, a_number(2), False),
    ({"type": "string", "logicalType": "uuid"}, text(b"none"), True),
    ({"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}, b"x" * 16, True),
    ({"type": "fixed", "name": "D", "size": 12, "logicalType": "duration"}, b"\xff" * 12, True),
    ({"type": "int", "logicalType": "time-millis"}, a_number(86_400_000), True),
    ({"type": "int", "logicalType": "time-millis"}, a_number(-1), True),
    ({"type": "long", "logicalType": "time-micros"}, a_number(2**63 - 1), True),
    ({"type": "long", "logicalType": "timestamp-millis"}, a_number(253_402_300_800_000), False),
    ({"type": "long", "logicalType": "timestamp-nanos"}, a_number(2**63 - 1), True),
    ({"type": "long", "logicalType": "local-timestamp-millis"}, a_number(5), True),
    ({"type": "long", "logicalType": "local-timestamp-millis"}, a_number(253_402_300_800_000), False),
    ({"type": "long", "logicalType": "local-timestamp-micros"}, a_number(2**63 - 1), False),
    ("float", b"\x01\x00\xc0\xff", True),
    (NULLS, a_number(2**20) + b"\x00", True),
    (NULLS, a_number(2**20 + 1) + b"\x00", False),
    (NULLS, a_number(2**24) + b"\x00", False),
    (NULLS, a_number(2**60) + b"\x00", False),
    (NULLS, a_number(2**19) * 2 + b"\x00", True),
    (NULLS, a_number(2**19) + a_number(2**19 + 1) + b"\x00", False),
    (NULLS, a_number(-3) + a_number(100) + b"\x00", True),
    (
        {"type": "array", "items": NULLS},
        a_number(1) + a_number(2**20) + b"\x00" + a_number(1) + a_number(1) + b"\x00\x00",
        False,
    ),
    ({"type": "array", "items": "string"}, a_number(200_000) + b"\x00" * 200_001, True),
    ({"type": "array", "items": "string"}, a_number(2**19) + b"\x00" * 9, False),
    ({"type": "map", "values": "int"}, a_number(1) + text(b"a") + a_number(1) + b"\x00", True),
    (["null", "int", "string"], a_number(2) + text(b"x"), True),
    (["null", "int", "string"], a_number(3), False),
    ({"type": "array", "items": ["null", "int", "string"]}, a_number(1) + a_number(1) + a_number(5) + b"\x00", True),
    ("string", text(b"\xff"), False),
    ("string", a_number(-1), False),
    ("string", text(b"x"), True),
]


def records() -> Iterator[tuple[str, bytes, bool]]:
    """Each as a schema, a body without frame with more bytes behind it than it needs, and whether it is an event."""
    for kind, field, is_event in BODIES:
        fields = [{"name": "before", "type": "int"}, {"name": "field", "type": kind}, {"name": "behind", "type": "int"}]
        yield (
            json.dumps({"type": "record", "name": "R", "fields": fields}),
            a_number(1) + field + a_number(7) + b"more",
            is_event,
        )

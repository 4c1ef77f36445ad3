"""Every value of an Avro schema, as hypothesis draws them; and a number as Avro writes it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_MS, _LAST_MS = -62_135_596_800_000, 253_402_300_799_999  # the years 1 to 9999


def a_number(value: int) -> bytes:
    """A value as Avro writes a long."""
    zigzag = (value << 1) ^ (value >> 63)
    out = bytearray()
    while zigzag > 0x7F:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    return bytes([*out, zigzag])


def values(schema: Any) -> st.SearchStrategy[Any]:
    """The Python values that `Codec.encode` takes for a parsed schema without references to itself."""
    if isinstance(schema, list):
        return st.one_of([values(branch) for branch in schema])
    if isinstance(schema, str):
        return _PRIMITIVES[schema]
    match schema:
        case {"type": "record", "fields": fields}:
            return st.fixed_dictionaries({field["name"]: values(field["type"]) for field in fields})
        case {"type": "enum", "symbols": symbols}:
            return st.sampled_from(symbols)
        case {"type": "array", "items": items}:
            return st.lists(values(items), max_size=6)
        case {"type": "map", "values": inner}:
            return st.dictionaries(st.text(), values(inner), max_size=6)
        case {"logicalType": "timestamp-millis"}:
            return st.integers(_FIRST_MS, _LAST_MS).map(lambda ms: _EPOCH + timedelta(milliseconds=ms))
        case {"logicalType": "date"}:
            return st.dates()
        case {"logicalType": "uuid"}:
            return st.uuids()
        case {"logicalType": "decimal", "precision": precision, "scale": scale}:
            most = 10**precision - 1
            return st.integers(-most, most).map(lambda unscaled: Decimal(unscaled).scaleb(-scale))
        case {"type": inner} if "logicalType" not in schema:
            return values(inner)
    raise NotImplementedError(f"no values for {schema}")


_PRIMITIVES: dict[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "bytes": st.binary(),
    "string": st.text(),
}

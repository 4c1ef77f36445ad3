"""Avro bodies as a stranger may write them: by the schema, at and beyond the edges of its types, and with damage."""

from __future__ import annotations

import json
import struct
from typing import Any

from hypothesis import strategies as st

from tests.audit.bodies import text
from tests.contracts.records.avro_values import a_number

_FIRST_MS, _LAST_MS = -62_135_596_800_000, 253_402_300_799_999  # the years 1 to 9999
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896


def _edges(*values: int, bits: int) -> st.SearchStrategy[int]:
    least, most = -(1 << bits - 1), (1 << bits - 1) - 1
    near = [value + step for value in (*values, least, most, 0) for step in (-1, 0, 1)]
    return st.sampled_from(sorted({value for value in near if least <= value <= most}))


def _mostly(usual: st.SearchStrategy[Any], odd: st.SearchStrategy[Any], one_in: int = 200) -> st.SearchStrategy[Any]:
    # A number from the middle: Hypothesis draws a range's ends more often than the rest.
    return st.integers(1, one_in).flatmap(lambda chance: odd if chance == one_in // 3 else usual)


_LOGICAL = {
    "timestamp-millis": _mostly(
        st.integers(1_356_998_400_000, 1_388_534_400_000), _edges(_FIRST_MS, _LAST_MS, bits=64), 20
    ),
    "timestamp-micros": _mostly(
        st.integers(1_356_998_400_000_000, 1_388_534_400_000_000),
        _edges(_FIRST_MS * 1000, _LAST_MS * 1000 + 999, bits=64),
        20,
    ),
    "date": _mostly(st.integers(15_706, 16_070), _edges(_FIRST_DAY, _LAST_DAY, bits=32), 20),
}
_NUMBERS = {
    "int": st.integers(0, 3000) | _edges(bits=32),
    "long": st.integers(0, 3000) | _edges(bits=64),
}
_TEXTS = st.one_of(
    st.sampled_from(
        ["EST", "NTH", "UA", "N14228", "IAH", "2024/11/23", "depots.observed.v1/10/7", "x/1/99999999999999999999"]
    ),
    st.sampled_from(
        ["", " ", ".", "..", "/", "a=b", "%2F", "__HIVE_DEFAULT_PARTITION__", "\0", "\n", "\ufeff", "📦" * 300]
    ),
    st.text(max_size=20),
)
_LONG = st.builds(
    lambda text, size: (text * size)[:size],
    st.sampled_from(["x", "é", "%", "📦", "a/"]),
    st.sampled_from([300, 1_025, 2_000, 30_000]),
)
_Bytes = st.SearchStrategy[bytes]


def bodies(schema: str) -> _Bytes:
    """Encodings of a record's schema, given as JSON text; most of them are valid, none has the frame before it."""
    return _value(json.loads(schema), {})


def _value(schema: Any, named: dict[str, _Bytes]) -> _Bytes:
    if isinstance(schema, list):
        return _union([_value(branch, named) for branch in schema])
    if isinstance(schema, str):
        return named[schema] if schema in named else _PRIMITIVES[schema]
    match schema:
        case {"type": "record", "fields": fields}:
            return st.tuples(*(_value(field["type"], named) for field in fields)).map(b"".join)
        case {"type": "enum", "name": name, "symbols": symbols}:
            named[name] = _mostly(st.integers(0, len(symbols) - 1), st.sampled_from([-1, len(symbols)])).map(a_number)
            return named[name]
        case {"type": "fixed", "name": name, "size": size}:
            named[name] = st.binary(min_size=size, max_size=size)
            return named[name]
        case {"type": "array", "items": items}:
            return _blocks(_value(items, named))
        case {"type": "map", "values": inner}:
            return _blocks(st.tuples(_PRIMITIVES["string"], _value(inner, named)).map(b"".join))
        case {"logicalType": logical} if logical in _LOGICAL:
            return _LOGICAL[logical].map(a_number)
        case {"type": inner}:
            return _value(inner, named)
    raise NotImplementedError(f"no bodies for {schema}")


def _union(branches: list[_Bytes]) -> _Bytes:
    usual = st.one_of([branch.map(a_number(index).__add__) for index, branch in enumerate(branches)])
    return _mostly(usual, st.sampled_from([a_number(-1), a_number(len(branches))]))


def _blocks(item: _Bytes) -> _Bytes:
    items = st.lists(item, max_size=3)
    usual = items.map(lambda found: (a_number(len(found)) + b"".join(found) if found else b"") + b"\0")
    # With its size in bytes, as a block may be written, and more of them than there are bytes.
    sized = items.map(lambda found: a_number(-len(found)) + a_number(len(b"".join(found))) + b"".join(found) + b"\0")
    return _mostly(
        usual, st.one_of(sized, st.sampled_from([a_number(1 << 24), a_number(1 << 60), a_number(-(1 << 40))]))
    )


_PRIMITIVES: dict[str, _Bytes] = {
    "null": st.just(b""),
    "boolean": _mostly(st.sampled_from([b"\0", b"\1"]), st.sampled_from([b"\2", b"\xff"])),
    "int": _NUMBERS["int"].map(a_number),
    "long": _NUMBERS["long"].map(a_number),
    "float": (st.floats(width=32) | st.sampled_from([float("nan"), float("inf"), -0.0])).map(struct.Struct("<f").pack),
    "double": (st.floats() | st.sampled_from([float("nan"), float("-inf"), -0.0])).map(struct.Struct("<d").pack),
    "bytes": st.binary(max_size=20).map(text),
    "string": _mostly(
        _TEXTS.map(str.encode),
        _LONG.map(str.encode) | st.binary(max_size=20) | st.sampled_from([b"\xed\xa0\x80", b"\xc0\x80", b"\xff"]),
    ).map(text),
}

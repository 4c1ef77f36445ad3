"""`Glance`: the few fields of an Avro body that rules look at, without the rest.

Up to its first array, map or record, an Avro body whose texts aren't long is a regular language: a text of three bytes is
0x06 and any three bytes. So `re` walks over it in C, several times as fast as Python could and as fastavro skips fields.
Encoding: avro.apache.org/docs/1.12.0/specification/#binary-encoding.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from struct import Struct
from typing import Any, Self

from contracts.records.wire import FRAME_BYTES
from services.alerting.rules.evaluate import CompiledRule

LONGEST_TEXT = 127
"""Bytes of the longest text that a body may have in front of what is looked at; each length is an alternative."""

_VARINT = rb"[\x80-\xff]{0,9}[\x00-\x7f]"
_SIZES = {"double": 8, "float": 4, "boolean": 1}

_double = Struct("<d").unpack
_float = Struct("<f").unpack


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a writer's schema: `kind` is Avro's type, `null` the byte of the union's null branch or None without a
    union, `size` a fixed type's bytes, `divisor` a decimal's power of ten.
    """

    name: str
    kind: str
    logical: str | None
    null: int | None
    size: int
    divisor: int

    @classmethod
    def of(cls, avro: Any) -> Self | None:
        """The field, or None where its type is none of those that can be passed."""
        kind, null = avro["type"], None
        if isinstance(kind, list):
            if len(kind) != 2 or "null" not in kind:
                return None
            null = 2 * kind.index("null")
            kind = kind[1 - null // 2]
        more = kind if isinstance(kind, dict) else {"type": kind}
        name, size = more["type"], more.get("size", 0)
        if name not in {"string", "bytes", "int", "long", "enum", "fixed", *_SIZES}:
            return None
        return cls(avro["name"], name, more.get("logicalType"), null, size, 10 ** more.get("scale", 0))

    @property
    def readable(self) -> bool:
        """Whether `value` is what rules see of the field: a number (of a decimal the nearest float) or a text."""
        if self.logical is not None:
            return self.kind == "bytes" and self.logical == "decimal"
        return self.kind in {"string", "int", "long", "double", "float"}

    def pattern(self, *, captured: bool) -> bytes:
        """What matches the field; with `captured` its value without the union's branch is a group."""
        if self.kind in {"string", "bytes"}:
            inner = _text_pattern()
        elif self.kind in {"int", "long", "enum"}:
            inner = _VARINT
        else:
            inner = rb".{%d}" % _SIZES.get(self.kind, self.size)
        if captured:
            inner = b"(" + inner + b")"
        if self.null is None:
            return inner
        return rb"(?:\x%02x|\x%02x%s)" % (self.null, 2 - self.null, inner)

    def value(self, raw: bytes | None) -> Any:
        """The value from what the group captured. Raises ValueError if a text is not UTF-8."""
        if raw is None:
            return None
        if self.kind in {"int", "long"}:
            number = sum((byte & 0x7F) << 7 * place for place, byte in enumerate(raw))
            return (number >> 1) ^ -(number & 1)
        if self.kind == "double":
            return _double(raw)[0]
        if self.kind == "float":
            return _float(raw)[0]
        text = raw[1:] if raw[0] < 0x80 else raw[2:]
        return int.from_bytes(text, "big", signed=True) / self.divisor if self.logical else text.decode()


@cache
def _text_pattern() -> bytes:
    """Each length with as many bytes; lengths from 64 on take two bytes."""
    short = [rb"\x%02x.{%d}" % (2 * size, size) for size in range(min(64, LONGEST_TEXT + 1))]
    long = [rb"\x%02x\x%02x.{%d}" % (2 * size & 0x7F | 0x80, size >> 6, size) for size in range(64, LONGEST_TEXT + 1)]
    return b"(?:" + b"|".join(short + long) + b")"


def fields_up_to(schema_fields: Iterable[Any], wanted: Iterable[str]) -> list[Field] | None:
    """The fields of a writer's schema (JSON) up to the last wanted one.

    None where they can't all be passed and read: what the writer doesn't know by this name has an alias or a default,
    which are the full decoding's business.
    """
    missing = set(wanted)
    found = []
    for avro in schema_fields:
        if not missing:
            break
        field = Field.of(avro)
        if field is None or (field.name in missing and not field.readable):
            return None
        missing.discard(field.name)
        found.append(field)
    return None if missing else found


def pattern_of(fields: Iterable[Field], wanted: Iterable[str]) -> re.Pattern[bytes]:
    """What matches a body's fields from its beginning on, behind the frame; the wanted ones are its groups."""
    names = set(wanted)
    return re.compile(b"".join(field.pattern(captured=field.name in names) for field in fields), re.DOTALL)


class Glance:
    """Reads the fields of `wanted` by name."""

    def __init__(self, fields: Sequence[Field], wanted: Iterable[str]) -> None:
        names = set(wanted)
        self._wanted = [field for field in fields if field.name in names]
        self._match = pattern_of(fields, names).match

    @classmethod
    def of(cls, schema_fields: Sequence[Any], rules: Iterable[CompiledRule]) -> Self | None:
        """The fields that thresholds look at, and those of filters that can be read whole; None where a threshold's can't."""
        rules = list(rules)
        known = _readable(schema_fields)
        wanted = {rule.rule.field for rule in rules}
        for rule in rules:
            if known.issuperset(rule.filter_fields):
                wanted.update(rule.filter_fields)
        fields = fields_up_to(schema_fields, wanted)
        return None if fields is None else cls(fields, wanted)

    def __call__(self, body: bytes) -> dict[str, Any] | None:
        """The values, or None where the body is not of the schema as far as they go, or has a long text.

        Raises ValueError if a wanted text is not UTF-8.
        """
        found = self._match(body, FRAME_BYTES)
        if found is None:
            return None
        return {field.name: field.value(raw) for field, raw in zip(self._wanted, found.groups(), strict=True)}


def _readable(schema_fields: Iterable[Any]) -> set[str]:
    """The names of the fields that can be read, up to the first that can't be passed."""
    names = set()
    for avro in schema_fields:
        field = Field.of(avro)
        if field is None:
            break
        if field.readable:
            names.add(field.name)
    return names

"""`Screen`: says quickly of most records that no rule's threshold can match.

A body is walked up to the last field that a threshold needs, and nothing is made of the fields between. What it can't
read with certainty it lets through: the full decoding, with all its checks, has the last word. So a record that crosses
no threshold is never decoded whole, and what is wrong with it behind those fields is not found here.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from struct import Struct
from struct import error as StructError
from typing import Any, TypeAlias

from services.alerting.evaluate import CompiledRule

_FRAME_BYTES = 5
_NO_UNION = -1

# What a step does with its field; those from _INTEGER on compare its value.
_TEXT, _VARINT, _FIXED, _INTEGER, _DOUBLE, _FLOAT, _DECIMAL = range(7)
_SKIP = {"string": _TEXT, "bytes": _TEXT, "int": _VARINT, "long": _VARINT, "double": _FIXED, "float": _FIXED}
_SKIP |= {"boolean": _FIXED, "enum": _VARINT}
_COMPARE = {"int": _INTEGER, "long": _INTEGER, "double": _DOUBLE, "float": _FLOAT}
_SIZES = {"double": 8, "float": 4, "boolean": 1}

_double = Struct("<d").unpack_from
_float = Struct("<f").unpack_from

_Step: TypeAlias = tuple[int, int, float, float, tuple[Callable[[float], bool], ...], int]
"""What to do, the union's byte for null or -1 without a union, the least value from which on and the greatest up to
which a threshold is crossed, comparisons besides, and a size in bytes or a decimal's divisor."""


class Screen:
    """The thresholds of one topic's rules, made ready for each schema that the topic's records are written with."""

    def __init__(self, rules: Iterable[CompiledRule], schema_by_id: Callable[[int], str]) -> None:
        """`schema_by_id` is asked by `learn` only."""
        self._rules = tuple(rules)
        self._schema_by_id = schema_by_id
        self._steps: dict[bytes, tuple[_Step, ...] | None] = {}

    def learn(self, frame: bytes) -> None:
        """Make ready for the schema whose id is in a body's first five bytes; `schema_by_id` must know it."""
        if frame not in self._steps:
            schema = json.loads(self._schema_by_id(int.from_bytes(frame[1:], "big")))
            self._steps[frame] = _steps(schema, self._rules)

    def lets_through(self, body: bytes | None) -> bool:
        """Whether the record has to be decoded and evaluated; False only if no threshold can be crossed."""
        if body is None:
            return True
        steps = self._steps.get(body[:_FRAME_BYTES])
        if steps is None:
            return True
        at = _FRAME_BYTES
        try:
            for kind, null, low, high, others, size in steps:
                if null >= 0:
                    branch = body[at]
                    at += 1
                    if branch == null:
                        continue
                    if branch != 2 - null:
                        return True
                if kind == _TEXT:
                    length = body[at]
                    at += 1
                    if length & 0x81:  # more than one byte, or negative
                        length, at = _unsigned(body, at - 1)
                        if length & 1:
                            return True
                    at += length >> 1
                    continue
                if kind == _VARINT:
                    while body[at] >= 0x80:
                        at += 1
                    at += 1
                    continue
                if kind == _FIXED:
                    at += size
                    continue
                value: float
                if kind == _INTEGER:
                    number = body[at]
                    at += 1
                    if number >= 0x80:
                        number, at = _unsigned(body, at - 1)
                    value = (number >> 1) ^ -(number & 1)
                elif kind == _DOUBLE:
                    (value,) = _double(body, at)
                    at += 8
                elif kind == _FLOAT:
                    (value,) = _float(body, at)
                    at += 4
                else:
                    length, at = _unsigned(body, at)
                    if length & 1 or length > 128:
                        return True
                    value = int.from_bytes(body[at : at + (length >> 1)], "big", signed=True) / size
                    at += length >> 1
                if value >= low or value <= high:
                    return True
                for crosses in others:
                    if crosses(float(value)):
                        return True
        # The body ends too early, or a number is too large to be compared.
        except (IndexError, ValueError, ArithmeticError, StructError):
            return True
        return at > len(body)


def _unsigned(body: bytes, at: int) -> tuple[int, int]:
    """A variable-length integer before the zig-zag, and where it ends."""
    value = shift = 0
    while True:
        byte = body[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("an integer has more than ten bytes")


def _steps(schema: Any, rules: tuple[CompiledRule, ...]) -> tuple[_Step, ...] | None:
    """The steps over a writer's schema (JSON); None where records can't be judged by it."""
    wanted: dict[str, list[CompiledRule]] = {}
    for rule in rules:
        wanted.setdefault(rule.rule.field, []).append(rule)
    steps = []
    for field in schema["fields"]:
        if not wanted:
            break
        step = _step(field["type"], wanted.pop(field["name"], []))
        if step is None:
            return None
        steps.append(step)
    # What the writer doesn't know by this name has an alias or a default, which are the full decoding's business.
    return None if wanted else tuple(steps)


def _step(avro: Any, rules: list[CompiledRule]) -> _Step | None:
    null = _NO_UNION
    if isinstance(avro, list):
        if len(avro) != 2 or "null" not in avro:
            return None
        null = 2 * avro.index("null")
        avro = avro[1 - null // 2]
    name, logical, scale = (avro, None, 0)
    if isinstance(avro, dict):
        name, logical, scale = avro["type"], avro.get("logicalType"), avro.get("scale", 0)
    if not rules:
        if name == "fixed":
            return (_FIXED, null, 0, 0, (), avro["size"])
        return (_SKIP[name], null, 0, 0, (), _SIZES.get(name, 0)) if name in _SKIP else None
    low, high, others = _bounds(rules)
    if name == "bytes" and logical == "decimal":
        return (_DECIMAL, null, low, high, others, 10**scale)
    return (_COMPARE[name], null, low, high, others, 0) if name in _COMPARE and logical is None else None


def _bounds(rules: list[CompiledRule]) -> tuple[float, float, tuple[Callable[[float], bool], ...]]:
    """One step wider than the thresholds: `evaluate` rounds long integers and decimals to floats, this does not."""
    low, high = math.inf, -math.inf
    others = []
    for rule in rules:
        threshold = rule.rule.threshold
        if rule.rule.operator in (">", ">="):
            low = min(low, math.nextafter(threshold, -math.inf))
        elif rule.rule.operator in ("<", "<="):
            high = max(high, math.nextafter(threshold, math.inf))
        else:
            others.append(rule.crosses)
    return low, high, tuple(others)

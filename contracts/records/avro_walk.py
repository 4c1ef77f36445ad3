"""The walk over an Avro body that is done before anything is made of it.

Avro says how many bytes or elements follow before they come, so a body of ten bytes can claim 2^60 of them, and an array
of nulls takes no bytes at all. The walk goes over a body by its schema, compares every claim with the bytes that are
there, and adds up an upper bound of what the decoded value takes in memory. It makes nothing itself. Encoding:
avro.apache.org/docs/1.12.0/specification/#binary-encoding.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from contracts.errors import Malformed, TooLong, TrailingBytes, Truncated

MEMORY_FACTOR = 16
MEMORY_SLACK = 1_048_576
"""A body of n bytes takes at most MEMORY_FACTOR * n + MEMORY_SLACK bytes to decode."""

JAVA_ITEMS = 1 << 20
"""The most items of a collection that Java's decoder takes, as `spark.runtime.session` sets it."""

_TEXT_FACTOR = 8
"""Bytes for each byte of text: the body's own copy, the bytes of the string, and 4 a character with room to grow."""
_INT_BYTES = 5
_LONG_BYTES = 10
"""More of them would be zeros, which Java refuses."""
_MOST_DIGITS = 38
"""Of a decimal, for Spark and Arrow, whatever precision a stranger's schema claims."""
_RESERVE = 131_072
"""What decoding takes besides the value: frames, buffers, an exception."""
_DEEPEST = 64
"""How deep a schema that contains itself may be followed; fastavro recurses on the C stack."""

# Upper bounds in bytes of CPython's objects, from sys.getsizeof on 64 bits.
_NUMBER = 32
_TEXT = 80
_LOGICAL = 192  # the largest is a UUID with its integer
_SLOT = 24  # in a list, while it is copied to a larger one
_ENTRY = 150  # in a dict, likewise
_CONTAINER = 256


class Cut(NamedTuple):
    """Bytes of a body that are no value of their type, and those of the value that Java's decoder takes them for."""

    start: int
    end: int
    taken_for: bytes


class _Account:
    """What is left of one body's allowance while it is walked."""

    __slots__ = ("cut", "depth", "items", "most_items", "room")

    def __init__(self, room: int, most_items: int, cut: list[Cut] | None) -> None:
        self.room = room
        self.most_items = most_items
        self.cut = cut
        self.items = 0
        self.depth = 0


_Step = Callable[[bytes, int, _Account], int]
"""Takes a body and where a value begins in it; returns where the value ends, perhaps behind the body's end."""


@dataclass(frozen=True, slots=True)
class _Part:
    step: _Step
    least: int
    """The fewest bytes that a value takes in the body."""
    cost: int
    """The most memory that a value takes, in bytes, without its text and its elements."""


class Walk:
    """The walk for one writer's schema, as `fastavro.parse_schema` returns it.

    `reader_fields` is the largest number of fields that a record of the reader's schema has: a record may get as many
    more by defaults. `as_java`: the bounds are those of Java's decoder, and so Spark's: JAVA_ITEMS in a collection, whatever they take
    in memory, bytes may follow the last field, and numbers are cut to their type's bits.
    """

    def __init__(self, parsed: Any, *, reader_fields: int = 0, as_java: bool = False) -> None:
        self._part = _Compiler(reader_fields).part(parsed)
        self._as_java = as_java

    def __call__(self, body: bytes, start: int) -> list[Cut]:
        """Raise Truncated, TrailingBytes, TooLong or Malformed if `body` from `start` on is no value of the schema.

        Text is not looked into. What is given back is empty but for Java.
        """
        size = len(body)
        cut: list[Cut] = []
        account = (
            _Account(sys.maxsize, JAVA_ITEMS, cut)
            if self._as_java
            else _Account(
                (MEMORY_FACTOR - _TEXT_FACTOR) * size + MEMORY_SLACK - _RESERVE - self._part.cost, sys.maxsize, None
            )
        )
        try:
            end = self._part.step(body, start, account)
        except IndexError:
            end = size + 1
        if end > size:
            raise Truncated(f"the body of {size} bytes ends before its last field does")
        if end < size and not self._as_java:
            raise TrailingBytes(f"{size - end} bytes follow the last field")
        return cut


class _Compiler:
    def __init__(self, reader_fields: int) -> None:
        self._reader_fields = reader_fields
        self._named: dict[str, _Part | _Recursion] = {}

    def part(self, schema: Any) -> _Part:
        if isinstance(schema, list):
            return _union([self.part(branch) for branch in schema])
        if isinstance(schema, str):
            return self._reference(schema)
        kind = schema["type"]
        if kind in ("record", "error"):
            return self._record(schema)
        if kind == "enum":
            return self._keep(schema, _Part(_below(len(schema["symbols"]), "enum symbol"), 1, 0))
        if kind == "fixed":
            size = schema["size"]
            cost = _LOGICAL if "logicalType" in schema else _TEXT
            step = _of_precision(schema, size) if _is_decimal(schema) else lambda _body, at, _account: at + size
            return self._keep(schema, _Part(step, size, cost))
        if kind == "array":
            item = self.part(schema["items"])
            return _Part(_blocks(item.step, item.least, _SLOT + item.cost), 1, _CONTAINER)
        if kind == "map":
            return _Part(self._map(self.part(schema["values"])), 1, _CONTAINER)
        part = self.part(kind)
        if "logicalType" not in schema:
            return part
        if _is_decimal(schema):
            return _Part(_of_precision(schema, None), 1, _LOGICAL)
        return _Part(part.step, part.least, _LOGICAL)

    def _reference(self, name: str) -> _Part:
        if name in _PRIMITIVES:
            return _PRIMITIVES[name]
        named = self._named[name]
        # Inside its own definition a record's size is not known yet: it is charged each time that it is met.
        return _Part(named.step, 0, 0) if isinstance(named, _Recursion) else named

    def _keep(self, schema: Any, part: _Part) -> _Part:
        self._named[schema["name"]] = part
        return part

    def _record(self, schema: Any) -> _Part:
        recursion = self._named[schema["name"]] = _Recursion()
        fields = [self.part(field["type"]) for field in schema["fields"]]
        steps = tuple(field.step for field in fields)

        def record(body: bytes, at: int, account: _Account) -> int:
            for step in steps:
                at = step(body, at, account)
            return at

        entries = len(fields) + self._reader_fields
        cost = _CONTAINER + _ENTRY * entries + sum(field.cost for field in fields)
        part = _Part(record, sum(field.least for field in fields), cost)
        recursion.part = part
        return self._keep(schema, part)

    def _map(self, value: _Part) -> _Step:
        def entry(body: bytes, at: int, account: _Account) -> int:
            return value.step(body, _text(body, at, account), account)

        return _blocks(entry, 1 + value.least, _ENTRY + _TEXT + value.cost)


class _Recursion:
    """A record inside its own definition."""

    part: _Part

    def step(self, body: bytes, at: int, account: _Account) -> int:
        account.room -= self.part.cost
        account.depth += 1
        if account.room < 0 or account.depth > _DEEPEST:
            raise TooLong(f"the body nests records more than {_DEEPEST} deep, or too many of them")
        at = self.part.step(body, at, account)
        account.depth -= 1
        return at


def _unsigned(body: bytes, at: int, most: int = _LONG_BYTES) -> tuple[int, int]:
    """A variable-length integer of at most so many bytes before the zig-zag, and where it ends."""
    value = 0
    for shift in range(0, 7 * most, 7):
        byte = body[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise Malformed(f"an integer has more than {most} bytes")


def _is_decimal(schema: Any) -> bool:
    return bool(schema.get("logicalType") == "decimal")


def _below(limit: int, what: str) -> _Step:
    """An index that is less than `limit`."""

    def index(body: bytes, at: int, account: _Account) -> int:
        value, at = _unsigned(body, at, _INT_BYTES)
        if value & 1 or value >> 1 >= limit:
            raise Malformed(f"there is no such {what} in the schema")
        return at

    return index


def _null(body: bytes, at: int, account: _Account) -> int:
    return at


def _boolean(body: bytes, at: int, account: _Account) -> int:
    if body[at] > 1:
        _cut(account, at, at + 1, b"\x00", "a boolean is neither 0 nor 1")
    return at + 1


def _int(body: bytes, at: int, account: _Account) -> int:
    if body[at] < 0x80:
        return at + 1
    value, end = _unsigned(body, at, _INT_BYTES)
    if value >> 32:
        _cut(account, at, end, _variable(value & 0xFFFF_FFFF), "an int has more than 32 bits")
    return end


def _long(body: bytes, at: int, account: _Account) -> int:
    if body[at] < 0x80:
        return at + 1
    value, end = _unsigned(body, at)
    if value >> 64:
        _cut(account, at, end, _variable(value & 0xFFFF_FFFF_FFFF_FFFF), "a long has more than 64 bits")
    return end


def _cut(account: _Account, start: int, end: int, taken_for: bytes, problem: str) -> None:
    if account.cut is None:
        raise Malformed(problem)
    account.cut.append(Cut(start, end, taken_for))


def _variable(value: int) -> bytes:
    """An unsigned number in as many bytes as it needs."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _text(body: bytes, at: int, account: _Account) -> int:
    size = body[at]
    at += 1
    if size >= 0x80:
        size, at = _unsigned(body, at - 1)
    if size & 1:
        raise Malformed("a length is negative")
    return at + (size >> 1)


def _of_precision(schema: Any, size: int | None) -> _Step:
    """A decimal with no more digits than its type has, in so many bytes; None: they are counted in front of it.

    Looked at here because fastavro rounds one that has more, and takes minutes for one of a megabyte.
    """
    precision = min(schema.get("precision", 0), _MOST_DIGITS)
    limit = 10**precision

    def decimal(body: bytes, at: int, account: _Account) -> int:
        end = _text(body, at, account) if size is None else at + size
        if end > len(body):
            return end
        if size is None:
            at = _unsigned(body, at)[1]
        if at == end:
            raise Malformed("a decimal has no bytes")
        if not -limit < int.from_bytes(body[at:end], "big", signed=True) < limit:
            raise Malformed(f"a decimal has more than {precision} digits")
        return end

    return decimal


def _union(branches: list[_Part]) -> _Part:
    steps = tuple(branch.step for branch in branches)

    def union(body: bytes, at: int, account: _Account) -> int:
        index = body[at]
        at += 1
        if index >= 0x80:
            index, at = _unsigned(body, at - 1, _INT_BYTES)
        if index & 1 or index >> 1 >= len(steps):
            raise Malformed("there is no such branch in a union")
        return steps[index >> 1](body, at, account)

    return _Part(union, 1 + min(branch.least for branch in branches), max(branch.cost for branch in branches))


def _blocks(item: _Step, least: int, cost: int) -> _Step:
    """An array's or a map's blocks of items, each item at least `least` bytes long and worth `cost` bytes of memory."""

    def blocks(body: bytes, at: int, account: _Account) -> int:
        # As Java counts: one count for all, begun anew with each collection, so that one goes on where one inside it ended.
        account.items = 0
        while True:
            zigzag, at = _unsigned(body, at)
            if zigzag == 0:
                return at
            count = zigzag >> 1
            if zigzag & 1:  # negative: the block's size in bytes comes too, which a reader need not use
                count += 1
                _, at = _unsigned(body, at)
            if count * least > len(body) - at:
                raise Truncated(f"a block of {count} items is longer than the body")
            account.items += count
            if account.items > account.most_items:
                raise TooLong(f"a collection has more than {account.most_items} items")
            account.room -= count * cost
            if account.room < 0:
                raise TooLong(
                    f"the collections in a body of {len(body)} bytes would take more than {MEMORY_FACTOR} times its size"
                    f" plus {MEMORY_SLACK} bytes of memory"
                )
            for _ in range(count):
                at = item(body, at, account)

    return blocks


_PRIMITIVES = {
    "null": _Part(_null, 0, 0),
    "boolean": _Part(_boolean, 1, 0),
    "int": _Part(_int, 1, _NUMBER),
    "long": _Part(_long, 1, _NUMBER),
    "float": _Part(lambda _body, at, _account: at + 4, 4, _NUMBER),
    "double": _Part(lambda _body, at, _account: at + 8, 8, _NUMBER),
    "bytes": _Part(_text, 1, _TEXT),
    "string": _Part(_text, 1, _TEXT),
}

"""A source file's bytes as the table that its contract describes."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Sequence
from datetime import date

import pyarrow as pa

from contracts.definitions.dimension import Column, DimensionContract
from contracts.records.limits import DIMENSION_TEXT_BYTES
from services.dimensions.rejected import Rejected

Value = str | int | float | bool | date

_INTEGER = re.compile(r"[+-]?[0-9]+")
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def parse(contract: DimensionContract, body: bytes) -> pa.Table | Rejected:
    """The rows of a CSV file (UTF-8, a header line, RFC 4180 quotes) under the contract's names and types.

    Columns that the contract does not name are left out. The first thing that is wrong makes it Rejected:
    `Unparseable`, `MissingColumn`, `Empty`, `MissingValue`, `WrongType`, `TooLong` or `DuplicateKey`.
    """
    if b"\0" in body:
        return Rejected("Unparseable", f"not text: byte {body.index(0)} is 0x00")
    try:
        lines = csv.reader(io.StringIO(body.decode("utf-8-sig"), newline=""), strict=True)
        header = next(lines, [])
        rows = [(lines.line_num, row) for row in lines if row]
    except UnicodeDecodeError as error:
        return Rejected("Unparseable", f"not UTF-8: byte {error.start} is 0x{body[error.start]:02x}")
    except csv.Error as error:
        return Rejected("Unparseable", f"not CSV: line {lines.line_num}: {error}")
    return _wrong_header(contract, header) or _wrong_width(header, rows) or _table(contract, header, rows)


def _wrong_header(contract: DimensionContract, header: Sequence[str]) -> Rejected | None:
    if not header:
        return Rejected("Empty", "the file has no header line")
    for column in contract.columns:
        if column.source not in header:
            return Rejected(
                "MissingColumn", f"column {column.source!r} is missing; there are: {', '.join(header)[:500]!r}"
            )
        if header.count(column.source) > 1:
            return Rejected("Unparseable", f"column {column.source!r} is there {header.count(column.source)} times")
    return None


def _wrong_width(header: Sequence[str], rows: Sequence[tuple[int, list[str]]]) -> Rejected | None:
    if not rows:
        return Rejected("Empty", "the file has no rows")
    for line, row in rows:
        if len(row) != len(header):
            return Rejected("Unparseable", f"line {line} has {len(row)} values, the header has {len(header)}")
    return None


def _table(
    contract: DimensionContract, header: Sequence[str], rows: Sequence[tuple[int, list[str]]]
) -> pa.Table | Rejected:
    columns: dict[str, list[Value | None]] = {}
    for column in contract.columns:
        values = _values(column, header.index(column.source), rows, frozenset(contract.null_values))
        if isinstance(values, Rejected):
            return values
        columns[column.name] = values
    seen: dict[tuple[Value | None, ...], int] = {}
    for (line, _), key in zip(rows, zip(*(columns[name] for name in contract.key), strict=True), strict=True):
        if key in seen:
            text = ", ".join(map(str, key))
            return Rejected("DuplicateKey", f"lines {seen[key]} and {line} have the same key: {text}")
        seen[key] = line
    fields = [pa.field(column.name, _TYPES[column.type][0], column.nullable) for column in contract.columns]
    return pa.table(columns, schema=pa.schema(fields))


def _values(
    column: Column, index: int, rows: Sequence[tuple[int, list[str]]], null_values: frozenset[str]
) -> list[Value | None] | Rejected:
    read = _TYPES[column.type][1]
    values: list[Value | None] = []
    for line, row in rows:
        text = row[index]
        value = None if text in null_values else read(text)
        if value is None and text not in null_values:
            return Rejected("WrongType", f"line {line}, column {column.source!r}: {text[:80]!r} is no {column.type}")
        if isinstance(value, str) and len(value.encode()) > DIMENSION_TEXT_BYTES:
            size = f"{len(value.encode())} bytes, at most {DIMENSION_TEXT_BYTES} fit into what looks it up"
            return Rejected("TooLong", f"line {line}, column {column.source!r}: {size}")
        if value is None and not column.nullable:
            return Rejected("MissingValue", f"line {line}, column {column.source!r} must have a value")
        values.append(value)
    return values


def _integer(bits: int) -> Callable[[str], int | None]:
    limit = 2 ** (bits - 1)

    def read(text: str) -> int | None:
        # 20 digits are more than 64 bits hold.
        if len(text) > 20 or not _INTEGER.fullmatch(text):
            return None
        value = int(text)
        return value if -limit <= value < limit else None

    return read


def _double(text: str) -> float | None:
    value = float(text) if _DECIMAL.fullmatch(text) else math.nan
    return value if math.isfinite(value) else None


def _date(text: str) -> date | None:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


# A contract's types: as an Arrow type, and how to read one from text; None when the text is no such value.
_TYPES: dict[str, tuple[pa.DataType, Callable[[str], Value | None]]] = {
    "string": (pa.string(), str),
    "int": (pa.int32(), _integer(32)),
    "long": (pa.int64(), _integer(64)),
    "double": (pa.float64(), _double),
    "boolean": (pa.bool_(), {"true": True, "false": False}.get),
    "date": (pa.date32(), _date),
}

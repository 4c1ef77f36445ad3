"""A source file's bytes as the table that its contract describes."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime

import pyarrow as pa
import pyarrow.compute as pc

from contracts.definitions.dimension import Column, DimensionContract
from contracts.records.limits import DIMENSION_TEXT_BYTES
from services.dimensions.rejected import Rejected
from services.dimensions.rows import Rows

Value = str | int | float | bool | date | datetime

_INTEGER = re.compile(r"[+-]?[0-9]+")
_DECIMAL = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
_NUMBER_CHARACTERS = 400
"""The largest double has 309 digits before its point."""

_BATCH_ROWS = 10_000
"""So many rows are Python's at a time: there a value takes some 60 bytes, as Arrow's its own."""


def parse(contract: DimensionContract, body: bytes) -> pa.Table | Rejected:
    """The rows of a CSV file (UTF-8, a header line, RFC 4180 quotes) under the contract's names and types.

    Columns that the contract does not name are left out. The first thing that is wrong makes it Rejected:
    `Unparseable`, `MissingColumn`, `Empty`, `MissingValue`, `WrongType`, `TooLong`, `DuplicateKey`, `NoTime` or `Overlap`.
    """
    if b"\0" in body:
        return Rejected("Unparseable", f"not text: byte {body.index(0)} is 0x00")
    rows = Rows(body)
    try:
        header = next(rows, [])
        table = _wrong_header(contract, header) or _table(contract, header, rows)
    except UnicodeDecodeError:
        return Rejected("Unparseable", _not_text(body))
    except csv.Error as error:
        return Rejected("Unparseable", f"not CSV: line {rows.line}: {error}")
    return table if isinstance(table, Rejected) else _wrong_rows(contract, table, body) or table


def schema_of(contract: DimensionContract) -> pa.Schema:
    """Of the published table."""
    return pa.schema([pa.field(each.name, _TYPES[each.type][0], each.nullable) for each in contract.columns])


def _not_text(body: bytes) -> str:
    try:
        body.decode()
    except UnicodeDecodeError as error:
        return f"not UTF-8: byte {error.start} is 0x{body[error.start]:02x}"
    return "not UTF-8"


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


def _table(contract: DimensionContract, header: Sequence[str], rows: Rows) -> pa.Table | Rejected:
    schema = schema_of(contract)
    places = [(column, header.index(column.source)) for column in contract.columns]
    null_values = frozenset(contract.null_values or ())
    batches: list[pa.RecordBatch] = []
    columns: list[list[Value | None]] = [[] for _ in places]
    for row in rows:
        if not row:
            continue
        if len(row) != len(header):
            return Rejected("Unparseable", f"line {rows.line} has {len(row)} values, the header has {len(header)}")
        for (column, index), values in zip(places, columns, strict=True):
            value = _value(column, row[index], null_values, rows.line)
            if isinstance(value, Rejected):
                return value
            values.append(value)
        if len(columns[0]) == _BATCH_ROWS:
            batches.append(pa.record_batch(columns, schema=schema))
            columns = [[] for _ in places]
    if columns[0]:
        batches.append(pa.record_batch(columns, schema=schema))
    if not batches:
        return Rejected("Empty", "the file has no rows")
    return pa.Table.from_batches(batches)


def _value(column: Column, text: str, null_values: frozenset[str], line: int) -> Value | Rejected | None:
    if text in null_values:
        if column.nullable:
            return None
        return Rejected("MissingValue", f"line {line}, column {column.source!r} must have a value")
    value = _TYPES[column.type][1](text)
    if value is None:
        return Rejected("WrongType", f"line {line}, column {column.source!r}: {text[:80]!r} is no {column.type}")
    if isinstance(value, str) and len(value.encode()) > DIMENSION_TEXT_BYTES:
        size = f"{len(value.encode())} bytes, at most {DIMENSION_TEXT_BYTES} fit into what looks it up"
        return Rejected("TooLong", f"line {line}, column {column.source!r}: {size}")
    return value


def _wrong_rows(contract: DimensionContract, table: pa.Table, body: bytes) -> Rejected | None:
    """A key that stands twice, at any time or at the same; a row that holds at no time.

    By sorting: a set of the keys takes ten times the memory.
    """
    valid = contract.valid
    by = [*contract.key] if valid is None else [*contract.key, valid.begins]
    order = pc.sort_indices(table, sort_keys=[(name, "ascending") for name in by])
    is_twice: pa.BooleanArray | None = None
    for name in contract.key:
        values = table.column(name).take(order).combine_chunks()
        of_column = pc.equal(values[1:], values[:-1])
        is_twice = of_column if is_twice is None else pc.and_(is_twice, of_column)
    if valid is not None:
        begins, ends = (table.column(name).take(order).combine_chunks() for name in (valid.begins, valid.ends))
        if (at := pc.index(pc.greater_equal(begins, ends), True).as_py()) >= 0:
            row = order[at].as_py()
            return Rejected("NoTime", f"line {_lines(body, row)[0]}: {valid.ends} is not after {valid.begins}")
        # Without end if null.
        is_twice = pc.and_(is_twice, pc.fill_null(pc.greater(ends[:-1], begins[1:]), True))
    if (at := pc.index(is_twice, True).as_py()) < 0:
        return None
    first, second = sorted((order[at].as_py(), order[at + 1].as_py()))
    key = ", ".join(str(table.column(name)[first].as_py()) for name in contract.key)
    line, other = _lines(body, first, second)
    if valid is None:
        return Rejected("DuplicateKey", f"lines {line} and {other} have the same key: {key}")
    return Rejected("Overlap", f"lines {line} and {other} have the same key and hold at the same time: {key}")


def _lines(body: bytes, *numbers: int) -> list[int]:
    """The lines of rows, which are numbered from 0 on and given in this order."""
    rows = Rows(body)
    next(rows)
    lines = enumerate(rows.line for row in rows if row)
    return [next(line for found, line in lines if found == number) for number in numbers]


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
    value = float(text) if len(text) <= _NUMBER_CHARACTERS and _DECIMAL.fullmatch(text) else math.nan
    return value if math.isfinite(value) else None


def _date(text: str) -> date | None:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


def _timestamp(text: str) -> datetime | None:
    try:
        value = datetime.fromisoformat(text)
    except ValueError:
        return None
    try:
        return value.astimezone(UTC) if value.tzinfo is not None else None
    except OverflowError:
        return None


# A contract's types: as an Arrow type, and how to read one from text; None when the text is no such value.
_TYPES: dict[str, tuple[pa.DataType, Callable[[str], Value | None]]] = {
    "string": (pa.string(), str),
    "int": (pa.int32(), _integer(32)),
    "long": (pa.int64(), _integer(64)),
    "double": (pa.float64(), _double),
    "boolean": (pa.bool_(), {"true": True, "false": False}.get),
    "date": (pa.date32(), _date),
    "timestamp": (pa.timestamp("us", "UTC"), _timestamp),
}

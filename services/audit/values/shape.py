"""`Shape`: the fields of a topic's events as Arrow columns, from Kafka and from the lake, and their digests."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import fastavro
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from services.audit.values.digest import NULL, Digests, digests, mix, salt

_PLAIN = {
    "boolean": pa.bool_(),
    "int": pa.int64(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
    "fixed": pa.binary(),
}
_LOGICAL = {
    "date": pa.date32(),
    "timestamp-millis": pa.timestamp("ms", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "local-timestamp-millis": pa.timestamp("ms"),
    "local-timestamp-micros": pa.timestamp("us"),
}
"""Of all others Spark takes no notice, and neither does this: a time of day is a number, a UUID is a text."""
_CALENDAR = {
    pa.timestamp("ms", "UTC"): (-62_135_596_800_000, 253_402_300_799_999),
    pa.timestamp("us", "UTC"): (-62_135_596_800_000_000, 253_402_300_799_999_999),
    pa.timestamp("ms"): (-62_135_596_800_000, 253_402_300_799_999),
    pa.timestamp("us"): (-62_135_596_800_000_000, 253_402_300_799_999_999),
    pa.date32(): (-719_162, 2_932_896),
}
"""The first and the last instant and day of the years 1 to 9999, counted from 1970."""


class Shape:
    """The columns of one topic's events, by its current schema.

    A field whose type has no single Arrow type (a union of several types) is left out and named in `skipped`.
    """

    def __init__(self, schema: str) -> None:
        """`schema` is Avro as JSON text."""
        fields = json.loads(schema)["fields"]
        found = {field["name"]: _arrow(field["type"]) for field in fields}
        self.columns: dict[str, pa.DataType] = {name: kind for name, kind in found.items() if kind is not None}
        self.skipped = tuple(name for name, kind in found.items() if kind is None)
        self._defaults = {
            field["name"]: _default(found[field["name"]], field["default"])
            for field in fields
            if found[field["name"]] is not None and field.get("default") is not None
        }

    def table(self, events: Sequence[Mapping[str, Any]]) -> dict[str, pa.Array]:
        """Events, decoded by `reader_schema`, as columns. Raises ArrowInvalid if one is not `held`."""
        return {
            name: pa.array([event[name] for event in events], kind, from_pandas=False)
            for name, kind in self.columns.items()
        }

    def held(self, event: Mapping[str, Any]) -> bool:
        """Whether the columns hold the event: not if a decimal of its writer's schema has more digits than the current one gives it."""
        try:
            self.table([event])
        except pa.ArrowInvalid:
            return False
        return True

    def digest(self, name: str, column: pa.Array) -> Digests:
        """A digest for each row of a field.

        Null and a field's default count as the same: a row that was written before the field was added has a null in the
        lake and the default to today's reader.
        """
        found = digests(column)
        default = self._defaults.get(name)
        if default is not None:
            found[found == default] = NULL
        return found

    def field_digests(self, columns: Mapping[str, pa.Array], rows: int) -> dict[str, Digests]:
        """Those of every field; a column that is missing is null."""
        return {
            name: self.digest(name, columns[name]) if name in columns else np.full(rows, NULL) for name in self.columns
        }


def in_calendar(column: pa.Array) -> npt.NDArray[np.bool_]:
    """Which rows have only instants and dates in the years 1 to 9999: a record with another is a dead letter, by rights."""
    kind = column.type
    if kind in _CALENDAR:
        least, most = _CALENDAR[kind]
        numbers = column.cast(pa.int32() if pa.types.is_date32(kind) else pa.int64())
        found = pc.and_(pc.greater_equal(numbers, least), pc.less_equal(numbers, most))
        return np.asarray(pc.fill_null(found, True).to_numpy(zero_copy_only=False))
    if pa.types.is_struct(kind):
        inside = [in_calendar(child) for child in column.flatten()]
        return np.logical_and.reduce(inside) if inside else np.ones(len(column), np.bool_)
    if not pa.types.is_nested(kind):
        return np.ones(len(column), np.bool_)
    if in_calendar(column.items if pa.types.is_map(kind) else column.flatten()).all():
        return np.ones(len(column), np.bool_)
    if len(column) == 1:
        return np.zeros(1, np.bool_)
    return np.concatenate([in_calendar(column.take(pa.array([row]))) for row in range(len(column))])


def row_digests(fields: Mapping[str, Digests], rows: int) -> Digests:
    """One digest for each row of these fields, whatever their order."""
    total = np.zeros(rows, np.uint64)
    for name, found in fields.items():
        total += mix(found ^ salt(name))
    return total


def reader_schema(schema: str) -> Any:
    """A parsed schema by which instants and dates are read as the whole numbers that they are, at a third of the time."""
    return fastavro.parse_schema(_bare(json.loads(schema)))


def _bare(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_bare(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: _bare(value) if key in ("type", "items", "values", "fields") else value
        for key, value in schema.items()
        if key != "logicalType" or value == "decimal"
    }


def _arrow(avro: Any) -> pa.DataType | None:
    """The Arrow type that an Avro type is read as; None if there is no single one."""
    if isinstance(avro, list):
        branches = [branch for branch in avro if branch != "null"]
        return _arrow(branches[0]) if len(branches) == 1 else None
    if isinstance(avro, str):
        return _PLAIN.get(avro)
    kind, logical = avro["type"], avro.get("logicalType")
    if logical == "decimal":
        return pa.decimal128(avro["precision"], avro.get("scale", 0))
    if logical in _LOGICAL:
        return _LOGICAL[logical]
    if kind == "array":
        items = _arrow(avro["items"])
        return None if items is None else pa.list_(items)
    if kind == "map":
        values = _arrow(avro["values"])
        return None if values is None else pa.map_(pa.string(), values)
    if kind == "record":
        children = [(field["name"], _arrow(field["type"])) for field in avro["fields"]]
        return None if any(child is None for _, child in children) else pa.struct(children)
    return _arrow(kind) if not isinstance(kind, str) else _PLAIN.get(kind)


def _default(kind: pa.DataType, default: Any) -> Any:
    """The digest of a field's default, which JSON holds as Avro's binary form would: instants are numbers."""
    if pa.types.is_decimal(kind):
        return None
    value = default.encode("latin-1") if pa.types.is_binary(kind) else default
    return digests(pa.array([value], kind))[0]

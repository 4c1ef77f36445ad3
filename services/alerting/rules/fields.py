"""`FieldType`: what a rule needs to know about a topic's field."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

_SAMPLES: dict[str, Any] = {
    "null": None,
    "boolean": True,
    "int": 1,
    "long": 1,
    "float": 1.0,
    "double": 1.0,
    "bytes": b"",
    "fixed": b"",
    "string": "x",
    "array": [],
    "map": {},
    "record": {},
    "decimal": Decimal(1),
    "date": date(2026, 1, 1),
    "timestamp-millis": datetime(2026, 1, 1, tzinfo=UTC),
    "timestamp-micros": datetime(2026, 1, 1, tzinfo=UTC),
}


@dataclass(frozen=True, slots=True)
class FieldType:
    """The Avro (or logical) type's name, and a value of it that was made up."""

    name: str
    sample: Any

    @property
    def numeric(self) -> bool:
        """Whether a threshold can be compared with it."""
        return self.name in {"int", "long", "float", "double", "decimal"}


def fields_of(schema: str) -> dict[str, FieldType]:
    """The fields of an Avro record schema (JSON text) by name; a nullable field counts as what it is otherwise."""
    return {field["name"]: _type(field["type"]) for field in json.loads(schema)["fields"]}


def _type(avro: Any) -> FieldType:
    if isinstance(avro, list):
        branches = [branch for branch in avro if branch != "null"]
        return _type(branches[0]) if len(branches) == 1 else FieldType("union", None)
    if isinstance(avro, str):
        return FieldType(avro, _SAMPLES.get(avro, "x"))
    logical = avro.get("logicalType")
    if logical in _SAMPLES:
        return FieldType(logical, _SAMPLES[logical])
    if logical is not None or avro["type"] == "enum":
        return FieldType(logical or "enum", avro.get("symbols", ["x"])[0])
    return _type(avro["type"]) if avro["type"] not in _SAMPLES else FieldType(avro["type"], _SAMPLES[avro["type"]])

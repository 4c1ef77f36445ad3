"""What Headrace asks of an Avro schema beyond Avro itself: docs, units, names of types and of instants."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

_UNIT = re.compile(r"\bin \w|\bper \w|\ba count\b|\bwithout unit\b|\bcalendar year\b", re.IGNORECASE)
_CLASS = re.compile(r"(?!(None|True|False)$)[A-Z][A-Za-z0-9]*")
_NUMBERS = {"int", "long", "float", "double", "decimal"}
NAMING_TYPES = ("string", "enum", "uuid", "boolean", "int", "long", "date", "timestamp-millis", "timestamp-micros")
"""Types of a field that names an event, as `kind` has them: equal values have equal bytes, and none is null. A double has two zeros, and many
values that are no number.
"""
NAMING_CURE = f"name an event by fields that are never null and have no default, each of type {', '.join(NAMING_TYPES)}"


def faults(schema: Any) -> Iterator[tuple[str, str]]:
    """Every broken rule of a parsed schema, as (what is wrong, cure)."""
    if not isinstance(schema, dict) or schema.get("type") != "record":
        yield "not a record", "make it a record"
        return
    for name in type_names(schema):
        if not _CLASS.fullmatch(name):
            yield f"the type {name} is to be a class of Python", "name it like Order or OrderPlaced"
    yield from _record_faults(schema, "")


def field_type(schema: Any, name: str) -> str | None:
    """The logical or else the plain type of a top-level field; None if there is no such field, or no record.

    A nullable field's type ends in `?`.
    """
    for field in schema.get("fields", ()) if isinstance(schema, dict) else ():
        if field["name"] == name:
            return kind(field["type"])
    return None


def naming_fault(schema: Any, name: str) -> str | None:
    """Why a top-level field can't name an event, behind "it is"; None if it can."""
    of = field_type(schema, name)
    if of is None:
        return "not there"
    if of not in NAMING_TYPES:
        return f"of type {of}"
    (field,) = [each for each in schema["fields"] if each["name"] == name]
    if "default" in field or (isinstance(field["type"], dict) and "default" in field["type"]):
        return "a field with a default, which would be the name of each event that was written without it"
    return None


def kind(schema: Any) -> str:
    """`timestamp-millis`, `string?`, `array`, …: the logical type if there is one, `?` for "or null"."""
    if isinstance(schema, list):
        others = [kind(branch) for branch in schema if branch != "null"]
        return "|".join(others) + ("?" if "null" in schema else "")
    if isinstance(schema, dict):
        inner = schema["type"]
        return str(schema.get("logicalType") or (inner if isinstance(inner, str) else kind(inner)))
    return str(schema)


def non_null(schema: Any) -> Any:
    """The one type of a nullable field; any other schema as it is."""
    if isinstance(schema, list):
        others = [branch for branch in schema if branch != "null"]
        return others[0] if len(others) == 1 else schema
    return schema


def type_names(schema: Any) -> list[str]:
    """The names of the schema's record and of every record and enum inside it, without namespace."""
    if isinstance(schema, list):
        return [name for branch in schema for name in type_names(branch)]
    if not isinstance(schema, dict):
        return []
    own = [str(schema["name"]).rpartition(".")[2]] if schema.get("type") in ("record", "enum") else []
    inside = [schema.get("type"), schema.get("items"), schema.get("values"), *schema.get("fields", ())]
    return own + [name for part in inside for name in type_names(part)]


def _record_faults(record: Any, path: str) -> Iterator[tuple[str, str]]:
    if not record.get("doc"):
        yield f"{path or 'the record'} has no doc", "say what it is"
    for field in record["fields"]:
        here = f"{path}.{field['name']}" if path else field["name"]
        of = kind(field["type"]).removesuffix("?")
        if not field.get("doc"):
            yield f"field {here} has no doc", "say what it is, with its unit"
        elif of in _NUMBERS and not _UNIT.search(field["doc"]):
            yield f"the doc of {here} names no unit", "end it with 'in <unit>', 'a count' or 'without unit'"
        if of.startswith("timestamp") != field["name"].endswith("_at"):
            yield f"field {here} is of type {of}", "instants, and only they, end in '_at'"
        for nested in _nested(field["type"]):
            yield from _record_faults(nested, here)


def _nested(schema: Any) -> Iterator[Any]:
    """The records inside a field's type."""
    if isinstance(schema, list):
        for branch in schema:
            yield from _nested(branch)
    elif isinstance(schema, dict):
        if schema["type"] == "record":
            yield schema
        for key in ("type", "items", "values"):
            if isinstance(schema.get(key), (dict, list)):
                yield from _nested(schema[key])

"""Examples: one event of a topic each, as the JSON that its model reads; test data for producers and consumers."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from io import BytesIO
from pathlib import Path
from typing import Any
from uuid import UUID

import fastavro


def example_files(root: Path, topic: str) -> Iterator[Path]:
    """The example files of a topic, by name."""
    yield from sorted((root / "examples" / topic).glob("*.json"))


def fault(path: Path, schema: Any) -> str | None:
    """Why the example is no record of the parsed Avro `schema`, or None. It must name every field of the schema."""
    try:
        value = _value(json.loads(path.read_text(encoding="utf-8")), schema)
        fastavro.schemaless_writer(BytesIO(), schema, value, strict=True)
    except json.JSONDecodeError as error:
        return f"not readable as JSON: {error}"
    except RecursionError:
        return "too many brackets within each other"
    except (ValueError, TypeError, AttributeError, InvalidOperation, OverflowError) as error:
        return str(error) or type(error).__name__
    return None


def _value(data: Any, schema: Any) -> Any:
    """JSON as the Python values that fastavro writes. Raises ValueError or TypeError when it does not fit."""
    if isinstance(schema, list):
        return _of_a_branch(data, schema)
    if not isinstance(schema, dict):
        return data
    match schema.get("logicalType") or schema["type"]:
        case "timestamp-millis" | "timestamp-micros":
            return _aware(data)
        case "date":
            return date.fromisoformat(data)
        case "decimal":
            return Decimal(data)
        case "uuid":
            return UUID(data)
        case "bytes" | "fixed":
            return base64.b64decode(data, validate=True)
        case "record":
            return _record(data, schema)
        case "array":
            return [_value(item, schema["items"]) for item in data]
        case "map":
            return {key: _value(item, schema["values"]) for key, item in data.items()}
        case _:
            return data


def _record(data: Any, schema: Any) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise TypeError(f"{schema['name']} is {data!r}, not an object")
    types = {field["name"]: field["type"] for field in schema["fields"]}
    for what, names in (("missing", types.keys() - data.keys()), ("unknown", data.keys() - types.keys())):
        if names:
            raise ValueError(f"{what}: {', '.join(sorted(names))}")
    record = {}
    for name, value in data.items():
        try:
            record[name] = _value(value, types[name])
        except (ValueError, TypeError, InvalidOperation) as error:
            raise ValueError(f"field {name} is {value!r}: {error}") from error
    return record


def _of_a_branch(data: Any, branches: list[Any]) -> Any:
    if data is None and "null" in branches:
        return None
    others = [branch for branch in branches if branch != "null"]
    if len(others) != 1:
        raise TypeError("a union of several types needs no example yet: only `null` and one type are understood")
    return _value(data, others[0])


def _aware(text: str) -> datetime:
    instant = datetime.fromisoformat(text)
    if instant.tzinfo is None:
        raise ValueError("no time zone")
    return instant

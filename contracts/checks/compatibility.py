"""May one schema version follow another? Avro's schema resolution, without a server.

The rules are those of "Schema Resolution" in the Avro 1.12 specification. One is stricter than the registries': a
changed logical type is refused, because the same bytes would silently get another value (a decimal's scale, millis to
micros).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from contracts.definitions.topic import Compatibility

Json = Any
"""A schema or a part of one, as parsed JSON."""

_PROMOTIONS = {
    "int": {"long", "float", "double"},
    "long": {"float", "double"},
    "float": {"double"},
    "string": {"bytes"},
    "bytes": {"string"},
}
"""Writer's type -> reader's types that can take it, besides itself."""


@dataclass(frozen=True, slots=True)
class Incompatibility:
    """Why records of version `writer` cannot be read with version `reader`, and where (`field`: a dotted path)."""

    field: str
    rule: str
    text: str
    reader: int
    writer: int

    def __str__(self) -> str:
        return (
            f"field {self.field}: {self.rule}: {self.text}; "
            f"version {self.reader} cannot read records of version {self.writer}"
        )


def incompatibilities(
    schemas: Sequence[str], mode: Compatibility, *, versions: Sequence[int] | None = None
) -> list[Incompatibility]:
    """Why the last of `schemas` (oldest first, as JSON text) may not follow the others under `mode`; empty if it may.

    `versions` are the numbers to name in the texts (default: 1, 2, …). Raises ValueError on text that is not JSON.
    """
    numbers = list(versions or range(1, len(schemas) + 1))
    *older, newest = [(number, json.loads(schema)) for number, schema in zip(numbers, schemas, strict=True)]
    if not mode.endswith("_TRANSITIVE"):
        older = older[-1:]
    found: list[Incompatibility] = []
    for old in reversed(older):
        if mode.startswith(("BACKWARD", "FULL")):
            found += _resolve(reader=newest, writer=old)
        if mode.startswith(("FORWARD", "FULL")):
            found += _resolve(reader=old, writer=newest)
    return found


def _resolve(*, reader: tuple[int, Json], writer: tuple[int, Json]) -> list[Incompatibility]:
    pair = _Pair(_named_types(reader[1]), _named_types(writer[1]))
    pair.compare(reader[1], writer[1], "")
    return [Incompatibility(path or "(record)", rule, text, reader[0], writer[0]) for path, rule, text in pair.found]


@dataclass(slots=True)
class _Pair:
    """One reader and one writer schema, walked together."""

    reader_types: dict[str, Json]
    writer_types: dict[str, Json]
    found: list[tuple[str, str, str]] = field(default_factory=list)
    seen: set[tuple[str, str]] = field(default_factory=set)

    def compare(self, reader: Json, writer: Json, path: str) -> None:
        reader, writer = _lookup(reader, self.reader_types), _lookup(writer, self.writer_types)
        match _kind(reader), _kind(writer):
            case _, "union":
                for branch in writer:
                    self.compare(reader, branch, path)
            case "union", _:
                namesake = next((branch for branch in reader if self._same_name(branch, writer)), None)
                if namesake is not None:
                    self.compare(namesake, writer, path)
                elif not any(self._fits(branch, writer, path) for branch in reader):
                    self._add(path, "MISSING_UNION_BRANCH", f"no branch of {_text(reader)} takes {_text(writer)}")
            case "record" | "enum" | "fixed" as kind, other if kind == other:
                self._compare_named(reader, writer, path)
            case "array", "array":
                self.compare(reader["items"], writer["items"], f"{path}[]")
            case "map", "map":
                self.compare(reader["values"], writer["values"], f"{path}{{}}")
            case kind, other if kind == other or kind in _PROMOTIONS.get(other, ()):
                pass
            case _:
                self._add(path, "TYPE_MISMATCH", f"{_text(reader)} does not take {_text(writer)}")
                return
        self._compare_logical(reader, writer, path)

    def _compare_named(self, reader: Json, writer: Json, path: str) -> None:
        names = (reader["full_name"], writer["full_name"])
        if names in self.seen:
            return
        self.seen.add(names)
        # As in Avro's own implementations, the unqualified name decides.
        if _short(names[0]) != _short(names[1]) and not _named_before(reader, names[1]):
            self._add(path, "NAME_MISMATCH", f"{names[0]} is not {names[1]} and has no such alias")
        if reader["type"] == "record":
            self._compare_fields(reader, writer, path)
        elif reader["type"] == "enum":
            lost = [symbol for symbol in writer["symbols"] if symbol not in reader["symbols"]]
            if lost and "default" not in reader:
                self._add(path, "MISSING_ENUM_SYMBOL", f"no symbol {', '.join(lost)} and no default symbol")
        elif reader["size"] != writer["size"]:
            self._add(path, "FIXED_SIZE_MISMATCH", f"{reader['size']} bytes are not {writer['size']} bytes")

    def _compare_fields(self, reader: Json, writer: Json, path: str) -> None:
        written = {part["name"]: part for part in writer["fields"]}
        for part in reader["fields"]:
            here = f"{path}.{part['name']}" if path else part["name"]
            names = [part["name"], *part.get("aliases", ())]
            source = next((written[name] for name in names if name in written), None)
            if source is not None:
                self.compare(part["type"], source["type"], here)
            elif "default" not in part:
                self._add(here, "MISSING_DEFAULT", "the other version has no such field, and there is no default")

    def _compare_logical(self, reader: Json, writer: Json, path: str) -> None:
        if _kind(reader) == "union" or _kind(writer) == "union":
            return
        is_, was = _logical(reader), _logical(writer)
        if is_ != was:
            self._add(path, "LOGICAL_TYPE_CHANGED", f"{' '.join(map(str, is_))} is not {' '.join(map(str, was))}")

    def _fits(self, reader: Json, writer: Json, path: str) -> bool:
        trial = _Pair(self.reader_types, self.writer_types, seen=set(self.seen))
        trial.compare(reader, writer, path)
        return not trial.found

    def _same_name(self, reader: Json, writer: Json) -> bool:
        """Both are the same named type, so what is wrong lies deeper than the union."""
        reader = _lookup(reader, self.reader_types)
        is_named = isinstance(reader, dict) and isinstance(writer, dict) and "full_name" in reader
        return is_named and reader["full_name"] == writer.get("full_name") and _kind(reader) == _kind(writer)

    def _add(self, path: str, rule: str, text: str) -> None:
        self.found.append((path, rule, text))


def _named_types(schema: Json, namespace: str = "") -> dict[str, Json]:
    """Every record, enum and fixed inside `schema` by full name; each gets its `full_name` written into it."""
    types: dict[str, Json] = {}
    if isinstance(schema, list):
        for branch in schema:
            types |= _named_types(branch, namespace)
    elif isinstance(schema, dict):
        if schema["type"] in ("record", "enum", "fixed"):
            name = schema["name"]
            namespace = name.rpartition(".")[0] if "." in name else schema.get("namespace", namespace)
            schema["full_name"] = f"{namespace}.{_short(name)}" if namespace else name
            types[schema["full_name"]] = schema
        for part in schema.get("fields", ()):
            part["type"] = _qualified(part["type"], namespace)
            types |= _named_types(part["type"], namespace)
        for key in ("items", "values"):
            if key in schema:
                schema[key] = _qualified(schema[key], namespace)
                types |= _named_types(schema[key], namespace)
        if isinstance(schema["type"], (dict, list)):
            types |= _named_types(schema["type"], namespace)
    return types


def _qualified(schema: Json, namespace: str) -> Json:
    """References to a named type get the namespace that they stand in."""
    if isinstance(schema, list):
        return [_qualified(branch, namespace) for branch in schema]
    if isinstance(schema, str) and schema not in _PRIMITIVES and "." not in schema and namespace:
        return f"{namespace}.{schema}"
    return schema


_PRIMITIVES = {"null", "boolean", "int", "long", "float", "double", "bytes", "string"}


def _lookup(schema: Json, types: dict[str, Json]) -> Json:
    if isinstance(schema, dict) and isinstance(schema["type"], (dict, list)):
        return _lookup(schema["type"], types)
    return types.get(schema, schema) if isinstance(schema, str) else schema


def _kind(schema: Json) -> str:
    if isinstance(schema, list):
        return "union"
    return str(schema["type"]) if isinstance(schema, dict) else str(schema)


def _logical(schema: Json) -> tuple[str | int, ...]:
    name = schema.get("logicalType") if isinstance(schema, dict) else None
    if name is None:
        return ("no logical type",)
    return (name, schema.get("precision", 0), schema.get("scale", 0)) if name == "decimal" else (name,)


def _short(name: str) -> str:
    return name.rpartition(".")[2]


def _named_before(reader: Json, name: str) -> bool:
    namespace = reader["full_name"].rpartition(".")[0]
    return any(name in (alias, f"{namespace}.{alias}") for alias in reader.get("aliases", ()))


def _text(schema: Json) -> str:
    if isinstance(schema, list):
        return f"[{', '.join(_text(branch) for branch in schema)}]"
    if isinstance(schema, dict):
        return str(schema.get("full_name") or schema.get("logicalType") or schema["type"])
    return str(schema)

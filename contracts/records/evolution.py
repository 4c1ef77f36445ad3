"""How records of a newer schema version come out in the shape that a running reader was started with: `Resolution`.

Under BACKWARD a new version can read what the old ones wrote, and nothing is promised the other way round, which is what a
query or a subscriber needs that isn't restarted. What Avro's own schema resolution lacks for it is added here, for the fields of the
record itself: a field that the new version calls otherwise is found by the new version's alias, and a number that the new
version widened (int to long, double, …) is taken back where its value still fits.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from contracts.errors import Unresolvable

_WIDER = {"int": ("long", "float", "double"), "long": ("float", "double"), "float": ("double",)}
"""A number's type, and those that it may be promoted to (Avro 1.12, "Schema Resolution")."""
_FLOAT = struct.Struct("<f")
BITS = {"int": 31, "long": 63}
"""Of an integer's magnitude."""


@dataclass(frozen=True, slots=True)
class Resolution:
    """`schema` is the reader's schema for one writer; its fields `widened` have the writer's type, in place of these. Its fields
    `absent` the writer does not have: their values are defaults.
    """

    schema: str
    widened: Mapping[str, str]
    absent: frozenset[str]

    def narrow(self, fields: dict[str, Any]) -> None:
        """Take the widened numbers of a decoded record back, in place; a float takes what is near.

        Raises Unresolvable if one doesn't fit.
        """
        for name, kind in self.widened.items():
            fields[name] = _narrowed(name, fields[name], kind)


def resolve(reader: str, writer: str) -> Resolution:
    """How to read records of schema `writer` into schema `reader`, as JSON text. Raises Unresolvable if the writer's is no record."""
    read, written = json.loads(reader), json.loads(writer)
    if not isinstance(written, dict) or "fields" not in written:
        raise Unresolvable("the writer's schema is not an Avro record")
    fields = {field["name"]: field for field in written["fields"]}
    renamed = {alias: field["name"] for field in written["fields"] for alias in field.get("aliases", ())}
    widened: dict[str, str] = {}
    absent: set[str] = set()
    for field in read["fields"]:
        names = [field["name"], *field.get("aliases", ())]
        if not fields.keys() & set(names) and field["name"] in renamed:
            field["aliases"] = [*field.get("aliases", ()), renamed[field["name"]]]
            names.append(renamed[field["name"]])
        source = next((fields[name] for name in names if name in fields), None)
        if source is None:
            absent.add(field["name"])
            continue
        narrow, wide = _number(field["type"]), _number(source["type"])
        if narrow is not None and wide in _WIDER.get(narrow, ()):
            widened[field["name"]] = narrow
            field["type"] = ["null", wide] if isinstance(field["type"], list) else wide
    return Resolution(json.dumps(read), widened, frozenset(absent))


def _narrowed(name: str, value: float | None, kind: str) -> float | None:
    if value is None:
        return None
    try:
        if kind == "float":
            return cast(float, _FLOAT.unpack(_FLOAT.pack(value))[0])
        if -(1 << BITS[kind]) <= value < 1 << BITS[kind] and int(value) == value:
            return int(value)
    except OverflowError:
        pass
    raise Unresolvable(f"field {name}: {value} does not fit {kind}, its type in the schema that it is read with")


def _number(kind: Any) -> str | None:
    """The plain number type of a field that may be null; None for anything else."""
    branches = [branch for branch in (kind if isinstance(kind, list) else [kind]) if branch != "null"]
    if len(branches) != 1:
        return None
    (branch,) = branches
    if isinstance(branch, dict) and "logicalType" not in branch:
        branch = branch["type"]
    return branch if branch in ("int", "long", "float", "double") else None

"""How records of a newer schema version come out in the shape that a running query was started with: `Reading`.

Under BACKWARD a new version can read what the old ones wrote, and nothing is promised the other way round, which is what a
query needs that isn't restarted. What Avro's own schema resolution lacks for it is added here, for the fields of the
record itself: a field that the new version calls otherwise is found by the new version's alias, and a number that the new
version widened (int to long, double, …) is taken back where its value still fits.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_WIDER = {"int": ("long", "float", "double"), "long": ("float", "double"), "float": ("double",)}
"""A number's type, and those that it may be promoted to (Avro 1.12, "Schema Resolution")."""


@dataclass(frozen=True, slots=True)
class Reading:
    """`schema` is the reader's schema for one writer; its fields `widened` have the writer's type, in place of these."""

    schema: str
    widened: Mapping[str, str]


def reading(reader: str, writer: str) -> Reading:
    """How to read records of schema `writer` into schema `reader`; both are records, as JSON text."""
    read, written = json.loads(reader), json.loads(writer)
    fields = {field["name"]: field for field in written["fields"]}
    renamed = {alias: field["name"] for field in written["fields"] for alias in field.get("aliases", ())}
    widened: dict[str, str] = {}
    for field in read["fields"]:
        names = [field["name"], *field.get("aliases", ())]
        if not fields.keys() & set(names) and field["name"] in renamed:
            field["aliases"] = [*field.get("aliases", ()), renamed[field["name"]]]
            names.append(renamed[field["name"]])
        source = next((fields[name] for name in names if name in fields), None)
        if source is None:
            continue
        narrow, wide = _number(field["type"]), _number(source["type"])
        if narrow is not None and wide in _WIDER.get(narrow, ()):
            widened[field["name"]] = narrow
            field["type"] = ["null", wide] if isinstance(field["type"], list) else wide
    return Reading(json.dumps(read), widened)


def _number(kind: Any) -> str | None:
    """The plain number type of a field that may be null; None for anything else."""
    branches = [branch for branch in (kind if isinstance(kind, list) else [kind]) if branch != "null"]
    if len(branches) != 1:
        return None
    (branch,) = branches
    if isinstance(branch, dict) and "logicalType" not in branch:
        branch = branch["type"]
    return branch if branch in ("int", "long", "float", "double") else None

from __future__ import annotations

import json
from typing import Any

import pytest

from contracts.checks.compatibility import incompatibilities
from contracts.definitions.topic import Compatibility


def record(*fields: dict[str, Any], name: str = "Event", **more: Any) -> str:
    return json.dumps({"type": "record", "name": name, "namespace": "test", "fields": list(fields), **more})


def of(type_: Any, **more: Any) -> dict[str, Any]:
    return {"name": "f", "type": type_, **more}


def enum(*symbols: str, **more: Any) -> dict[str, Any]:
    return {"type": "enum", "name": "E", "symbols": list(symbols), **more}


def nested(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "Inner", "fields": list(fields)}


def decimal(precision: int, scale: int) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}


def fixed(size: int) -> dict[str, Any]:
    return {"type": "fixed", "name": "F", "size": size}


MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
MICROS = {"type": "long", "logicalType": "timestamp-micros"}
KEPT = {"name": "kept", "type": "int"}

# What changed, the old and the new field list, whether new reads old (None) or which rule forbids it and where,
# and the same for old reads new.
CASES: list[tuple[str, list[Any], list[Any], tuple[str, str] | None, tuple[str, str] | None]] = [
    ("nothing", [of("int")], [of("int")], None, None),
    ("int to long", [of("int")], [of("long")], None, ("f", "TYPE_MISMATCH")),
    ("int to float", [of("int")], [of("float")], None, ("f", "TYPE_MISMATCH")),
    ("int to double", [of("int")], [of("double")], None, ("f", "TYPE_MISMATCH")),
    ("long to float", [of("long")], [of("float")], None, ("f", "TYPE_MISMATCH")),
    ("long to double", [of("long")], [of("double")], None, ("f", "TYPE_MISMATCH")),
    ("float to double", [of("float")], [of("double")], None, ("f", "TYPE_MISMATCH")),
    ("string to bytes", [of("string")], [of("bytes")], None, None),
    ("int to string", [of("int")], [of("string")], ("f", "TYPE_MISMATCH"), ("f", "TYPE_MISMATCH")),
    ("boolean to int", [of("boolean")], [of("int")], ("f", "TYPE_MISMATCH"), ("f", "TYPE_MISMATCH")),
    ("spelt out primitive", [of("int")], [of({"type": "int"})], None, None),
    ("field added with default", [KEPT], [KEPT, of("int", default=0)], None, None),
    ("field added without default", [KEPT], [KEPT, of("int")], ("f", "MISSING_DEFAULT"), None),
    ("field removed with default", [KEPT, of("int", default=0)], [KEPT], None, None),
    ("field removed without default", [KEPT, of("int")], [KEPT], None, ("f", "MISSING_DEFAULT")),
    ("fields in another order", [KEPT, of("int")], [of("int"), KEPT], None, None),
    (
        "field renamed",
        [of("int")],
        [{"name": "g", "type": "int"}],
        ("g", "MISSING_DEFAULT"),
        ("f", "MISSING_DEFAULT"),
    ),
    (
        "field renamed with alias",
        [of("int")],
        [{"name": "g", "type": "int", "aliases": ["f"]}],
        None,
        ("f", "MISSING_DEFAULT"),
    ),
    ("symbol added", [of(enum("A"))], [of(enum("A", "B"))], None, ("f", "MISSING_ENUM_SYMBOL")),
    ("symbol removed", [of(enum("A", "B"))], [of(enum("A"))], ("f", "MISSING_ENUM_SYMBOL"), None),
    ("symbol removed with default", [of(enum("A", "B"))], [of(enum("A", default="A"))], None, None),
    ("enum renamed", [of(enum("A"))], [of({**enum("A"), "name": "G"})], ("f", "NAME_MISMATCH"), ("f", "NAME_MISMATCH")),
    (
        "enum renamed with alias",
        [of(enum("A"))],
        [of({**enum("A"), "name": "G", "aliases": ["E"]})],
        None,
        ("f", "NAME_MISMATCH"),
    ),
    ("made nullable", [of("int")], [of(["null", "int"])], None, ("f", "TYPE_MISMATCH")),
    ("union widened", [of(["null", "int"])], [of(["null", "int", "string"])], None, ("f", "MISSING_UNION_BRANCH")),
    ("union narrowed", [of(["null", "int"])], [of(["null"])], ("f", "MISSING_UNION_BRANCH"), None),
    ("union's branch promoted", [of(["null", "int"])], [of(["null", "long"])], None, ("f", "MISSING_UNION_BRANCH")),
    ("union in another order", [of(["null", "int"])], [of(["int", "null"])], None, None),
    (
        "nested field added without default",
        [of(nested(KEPT))],
        [of(nested(KEPT, of("int")))],
        ("f.f", "MISSING_DEFAULT"),
        None,
    ),
    (
        "nested nullable record's field changed",
        [of(["null", nested(of("int"))])],
        [of(["null", nested(of("string"))])],
        ("f.f", "TYPE_MISMATCH"),
        ("f.f", "TYPE_MISMATCH"),
    ),
    (
        "array's items changed",
        [of({"type": "array", "items": "int"})],
        [of({"type": "array", "items": "long"})],
        None,
        ("f[]", "TYPE_MISMATCH"),
    ),
    (
        "map's values changed",
        [of({"type": "map", "values": "int"})],
        [of({"type": "map", "values": "string"})],
        ("f{}", "TYPE_MISMATCH"),
        ("f{}", "TYPE_MISMATCH"),
    ),
    (
        "array to map",
        [of({"type": "array", "items": "int"})],
        [of({"type": "map", "values": "int"})],
        ("f", "TYPE_MISMATCH"),
        ("f", "TYPE_MISMATCH"),
    ),
    ("fixed size changed", [of(fixed(8))], [of(fixed(16))], ("f", "FIXED_SIZE_MISMATCH"), ("f", "FIXED_SIZE_MISMATCH")),
    (
        "decimal's scale changed",
        [of(decimal(6, 2))],
        [of(decimal(6, 3))],
        ("f", "LOGICAL_TYPE_CHANGED"),
        ("f", "LOGICAL_TYPE_CHANGED"),
    ),
    (
        "decimal's precision changed",
        [of(decimal(6, 2))],
        [of(decimal(8, 2))],
        ("f", "LOGICAL_TYPE_CHANGED"),
        ("f", "LOGICAL_TYPE_CHANGED"),
    ),
    ("millis to micros", [of(MILLIS)], [of(MICROS)], ("f", "LOGICAL_TYPE_CHANGED"), ("f", "LOGICAL_TYPE_CHANGED")),
    ("logical type added", [of("long")], [of(MILLIS)], ("f", "LOGICAL_TYPE_CHANGED"), ("f", "LOGICAL_TYPE_CHANGED")),
    (
        "logical type in a union changed",
        [of(["null", MILLIS])],
        [of(["null", MICROS])],
        ("f", "MISSING_UNION_BRANCH"),
        ("f", "MISSING_UNION_BRANCH"),
    ),
    ("doc changed", [of("int", doc="A.")], [of("int", doc="B.")], None, None),
]


@pytest.mark.parametrize(("old", "new", "backward", "forward"), [case[1:] for case in CASES], ids=[c[0] for c in CASES])
def test_a_change_breaks_what_it_breaks(
    old: list[Any], new: list[Any], backward: tuple[str, str] | None, forward: tuple[str, str] | None
) -> None:
    schemas = [record(*old), record(*new)]
    found = {
        mode: {(one.field, one.rule) for one in incompatibilities(schemas, mode)}
        for mode in ("BACKWARD", "FORWARD", "FULL", "NONE")
    }
    assert found["BACKWARD"] == ({backward} if backward else set())
    assert found["FORWARD"] == ({forward} if forward else set())
    assert found["FULL"] == found["BACKWARD"] | found["FORWARD"]
    assert found["NONE"] == set()


@pytest.mark.parametrize(("mode", "breaks"), [("BACKWARD", False), ("BACKWARD_TRANSITIVE", True)])
def test_only_the_transitive_modes_look_beyond_the_last_version(mode: Compatibility, breaks: bool) -> None:
    schemas = [record(KEPT), record(KEPT, of("int", default=0)), record(KEPT, of("int"))]
    found = incompatibilities(schemas, mode)
    assert [(one.reader, one.writer) for one in found] == ([(3, 1)] if breaks else [])


def test_a_text_names_field_rule_and_both_versions() -> None:
    (found,) = incompatibilities([record(of("int")), record(of("string"))], "BACKWARD", versions=[4, 7])
    assert str(found) == (
        "field f: TYPE_MISMATCH: string does not take int; version 7 cannot read records of version 4"
    )


def test_a_single_version_is_compatible() -> None:
    assert incompatibilities([record(KEPT)], "FULL_TRANSITIVE") == []


def test_records_with_another_name_do_not_follow_each_other() -> None:
    (found,) = incompatibilities([record(KEPT), record(KEPT, name="Other")], "BACKWARD")
    assert (found.field, found.rule) == ("(record)", "NAME_MISMATCH")
    assert incompatibilities([record(KEPT), record(KEPT, name="Other", aliases=["Event"])], "BACKWARD") == []


def test_a_record_that_contains_itself_comes_to_an_end() -> None:
    schema = record(KEPT, of(["null", "Event"], default=None))
    assert incompatibilities([schema, schema], "FULL") == []


def test_a_type_named_again_is_compared_by_its_definition() -> None:
    old = record({"name": "a", "type": enum("A", "B")}, {"name": "b", "type": "E"})
    new = record({"name": "a", "type": enum("A", "B")}, {"name": "b", "type": "test.E"})
    assert incompatibilities([old, new], "FULL") == []

"""`Screen`: it may let through what no rule matches, and never holds back what one does."""

from __future__ import annotations

import json
import struct
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.records.codec import Codec
from services.alerting.rules.evaluate import compile_rule, evaluate
from services.alerting.rules.record import Record
from services.alerting.rules.screen import Screen
from tests.alerting.examples import AT, a_rule

SCHEMA_ID = 7
SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "Reading",
        "fields": [
            {"name": "station", "type": "string"},
            {"name": "flag", "type": ["null", "boolean"]},
            {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["a", "b"]}},
            {"name": "count", "type": ["long", "null"]},
            {"name": "inches", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
            {"name": "blast", "type": ["null", "double"]},
            {"name": "seats", "type": ["null", "int"]},
            {"name": "tags", "type": {"type": "array", "items": "string"}},
            {"name": "late", "type": "int"},
        ],
    }
)
FRAME = struct.pack(">bI", 0, SCHEMA_ID)

_OPERATORS = st.sampled_from([">", ">=", "<", "<=", "==", "!="])
_THRESHOLDS = st.sampled_from([-3.0, 0.0, 0.3, 2.0, 40.0, 2.0**53])
_FILTERS = st.sampled_from([None, "seats > 2", "station == 'NTH'", "'x' in tags", "seats > 2 && count < 3"])
_RULES = st.lists(
    st.builds(
        lambda field, operator, threshold, when: {
            "field": field,
            "operator": operator,
            "threshold": threshold,
            "when": when,
        },
        st.sampled_from(["count", "inches", "blast", "seats", "late"]),
        _OPERATORS,
        _THRESHOLDS,
        _FILTERS,
    ),
    min_size=1,
    max_size=4,
)
_NUMBERS = st.sampled_from([-3, 0, 1, 2, 3, 40, 64, 300, 2**31 - 1])
_READINGS = st.fixed_dictionaries(
    {
        "station": st.sampled_from(["NTH", "", "Ü" * 40, "x" * 63, "x" * 64, "x" * 127, "x" * 128, "x" * 300]),
        "flag": st.sampled_from([None, True]),
        "kind": st.sampled_from(["a", "b"]),
        "count": st.one_of(st.none(), _NUMBERS, st.sampled_from([2**53, 2**53 + 1, -(2**63), 2**63 - 1])),
        "inches": st.sampled_from([Decimal("0.30"), Decimal("0.00"), Decimal("-3.00"), Decimal("9999999.99")]),
        "blast": st.one_of(st.none(), st.sampled_from([-3.0, 0.3, 40.0, float("nan"), float("inf")])),
        "seats": st.one_of(st.none(), _NUMBERS),
        "tags": st.lists(st.sampled_from(["x", "y"]), max_size=2),
        "late": _NUMBERS,
    }
)


def a_reading(**changes: Any) -> dict[str, Any]:
    """Nothing that is far from zero."""
    fields = {"station": "NTH", "flag": None, "kind": "a", "count": 1, "inches": Decimal("0.10"), "blast": 1.0}
    return fields | {"seats": 1, "tags": [], "late": 1} | changes


def body_of(reading: dict[str, Any]) -> bytes:
    return Codec({SCHEMA_ID: SCHEMA}.__getitem__).encode(SCHEMA_ID, reading)


def a_screen(*rules: dict[str, Any], learnt: bool = True) -> Screen:
    compiled = [compile_rule(a_rule(name=f"r{number}", message="m", **rule)) for number, rule in enumerate(rules)]
    screen = Screen(compiled, {SCHEMA_ID: SCHEMA}.__getitem__)
    if learnt:
        screen.learn(FRAME)
    return screen


@settings(max_examples=150, deadline=None)
@given(rules=_RULES, reading=_READINGS)
def test_what_a_rule_matches_is_let_through(rules: list[dict[str, Any]], reading: dict[str, Any]) -> None:
    compiled = [compile_rule(a_rule(name=f"r{number}", message="m", **rule)) for number, rule in enumerate(rules)]
    if evaluate(compiled, Record("depots.observed.v1", "depots.observed.v1/0/0", AT, reading)):
        assert a_screen(*rules).lets_through(body_of(reading))


@pytest.mark.parametrize(
    ("rule", "matching"),
    [
        ({"field": "count", "operator": ">=", "threshold": 300}, {"count": 300}),
        ({"field": "count", "operator": "<", "threshold": -100}, {"count": -101}),
        ({"field": "inches", "operator": ">=", "threshold": 0.3}, {"inches": Decimal("0.30")}),
        ({"field": "blast", "operator": ">=", "threshold": 40}, {"blast": 40.0}),
        ({"field": "seats", "operator": "==", "threshold": 64}, {"seats": 64}),
        ({"field": "seats", "operator": ">", "threshold": 0, "when": "station == 'STH'"}, {"station": "STH"}),
    ],
)
def test_what_no_rule_matches_is_held_back(rule: dict[str, Any], matching: dict[str, Any]) -> None:
    screen = a_screen(rule)
    assert not screen.lets_through(body_of(a_reading()))
    assert screen.lets_through(body_of(a_reading(**matching)))


def test_a_filter_that_cannot_be_asked_early_is_left_to_the_decoding() -> None:
    screen = a_screen({"field": "seats", "operator": ">=", "threshold": 2, "when": "'x' in tags"})
    assert not screen.lets_through(body_of(a_reading()))
    assert screen.lets_through(body_of(a_reading(seats=2)))


@pytest.mark.parametrize(
    "body", [None, b"", b"\x00", FRAME, b"\x00\x00\x00\x00\x08" + body_of(a_reading())[5:], body_of(a_reading())[:12]]
)
def test_what_it_cannot_read_is_let_through(body: bytes | None) -> None:
    assert a_screen({"field": "seats", "operator": ">=", "threshold": 2}).lets_through(body)


def test_a_schema_that_was_not_learnt_or_has_an_array_in_front_is_left_to_the_decoding() -> None:
    rule = {"field": "seats", "operator": ">=", "threshold": 2}
    assert a_screen(rule, learnt=False).lets_through(body_of(a_reading()))
    assert a_screen({"field": "late", "operator": ">=", "threshold": 2}).lets_through(body_of(a_reading()))

"""`evaluate`: records in, alerts out; no Kafka, no clock, no state."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from string import Formatter
from typing import Any
from uuid import UUID, uuid5

import cel

from contracts.errors import TooLong
from contracts.events import AlertRaised
from contracts.records.limits import ALERT_TEXT_BYTES
from services.alerting.rules.record import Record
from services.alerting.rules.rule import Rule

ALERTS = UUID("6d1f4c1e-4c39-5f0e-9a57-6a3c2f1c8b7d")
"""The namespace of alert ids; chosen once, at random."""

UNKNOWN = "unknown"
"""Stands for a null field in messages and group keys."""

_LONGEST_FILTER = 1_000
"""Characters. The CEL library parses, walks and evaluates by recursion: some ten thousand end the process, by a full stack or by
a panic of Rust, which is no Exception."""
_LOOP = re.compile(r"\b(?:all|exists|exists_one|map|filter)\b")
"""What goes through a list. Within each other, two of them take minutes for a list of some thousands."""
_WHERE = re.compile(r"<input>:([0-9]+):([0-9]+): (?:Syntax error: )?(.*?)(?: expecting {.*)?$", re.MULTILINE)
"""Of the first fault in what the CEL library says to a text that is not CEL."""
_ASSIGNS = re.compile(r"token recognition error at: '=[^=>~]")
_MOST_ITEMS = 1_000
"""Of the lists and maps that a filter goes through: what it does with each item, such as `in`, may go through them again."""

BOUND = re.compile(r"\.\s*(?:all|exists|exists_one|map|filter)\s*\(\s*([A-Za-z_][A-Za-z0-9_]*)\s*,")
"""A name that a macro of CEL binds."""

_COMPARE: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
}


class FilterFailed(Exception):
    """A rule's CEL filter could not be evaluated on a record, or its answer was neither true nor false."""


@dataclass(frozen=True, slots=True)
class CompiledRule:
    """A rule made ready once, so that a record that does not match costs one comparison."""

    rule: Rule
    version: str
    crosses: Callable[[float], bool]
    program: cel.Program | None
    filter_fields: tuple[str, ...]
    loops: bool
    """Whether the filter goes through lists."""
    message: tuple[tuple[str, str | None, str], ...]
    named: tuple[str, ...]

    @property
    def fields(self) -> set[str]:
        """Every field that the rule needs."""
        return {self.rule.field, *self.named} | (set(self.filter_fields) - set(BOUND.findall(self.rule.when or "")))


def compile_rule(rule: Rule) -> CompiledRule:
    """The rule made ready. Raises ValueError if its filter or its message is not well-formed."""
    message = template(rule.message)
    program = None if rule.when is None else compile_filter(rule.when)
    mentioned = dict.fromkeys([*rule.group_by, *(field for _, field, _ in message if field is not None)])
    compare, threshold = _COMPARE[rule.operator], rule.threshold
    return CompiledRule(
        rule=rule,
        version=rule.version,
        crosses=lambda value: compare(value, threshold),
        program=program,
        filter_fields=() if program is None else tuple(program.variables()),
        loops=_LOOP.search(rule.when or "") is not None,
        message=message,
        named=tuple(field for field in mentioned if field != rule.field),
    )


def compile_filter(when: str) -> cel.Program:
    """The filter as a program. Raises ValueError if it is not well-formed, or may take too much to parse or evaluate."""
    if len(when) > _LONGEST_FILTER:
        raise ValueError(f"has {len(when)} characters: at most {_LONGEST_FILTER}")
    if len(_LOOP.findall(when)) > 1:
        raise ValueError("has more than one of all, exists, exists_one, map and filter")
    try:
        return cel.compile(when)
    except ValueError as error:
        if (where := _WHERE.search(str(error))) is None:
            raise
        line, character, what = where.groups()
        hint = "; CEL compares with ==" if _ASSIGNS.match(what) else ""
        at = f"character {character}" if line == "1" else f"line {line}, character {character}"
        raise ValueError(f"not CEL at {at}: {what}{hint}") from None


def template(message: str) -> tuple[tuple[str, str | None, str], ...]:
    """A message as (text before, field or None, format). Raises ValueError unless fields are plain `{name}`s."""
    parts = []
    for text, field, spec, conversion in Formatter().parse(message):
        if conversion or (spec and "{" in spec) or (field is not None and not field.isidentifier()):
            raise ValueError(f"'{{{field}}}' is not a field: write {{name}} or {{name:format}}")
        parts.append((text, field, spec or ""))
    return tuple(parts)


def evaluate(rules: Iterable[CompiledRule], record: Record) -> list[AlertRaised]:
    """The alerts that the record raises, in the rules' order; the same record and rules give the same alerts.

    A null field, or NaN, crosses no threshold. A filter that gives no answer because a field which it names is null, or holds a
    null, doesn't match either. Raises FilterFailed for any other filter that gives none, TooLong if an alert would be
    larger than its topic takes.
    """
    return [_alert(rule, record, value) for rule in rules if (value := _match(rule, record.values)) is not None]


def may_match(rule: CompiledRule, values: Mapping[str, Any]) -> bool:
    """Whether a record with these values may raise the rule's alert: a filter that needs others is not asked.

    Raises FilterFailed as `evaluate` does.
    """
    if all(field in values for field in rule.filter_fields):
        return _match(rule, values) is not None
    return _crossing(rule, values) is not None


def _match(rule: CompiledRule, values: Mapping[str, Any]) -> float | None:
    """The value that crossed the threshold, or None."""
    value = _crossing(rule, values)
    if value is None or rule.program is None:
        return value
    return value if _passes(rule, rule.program, values) else None


def _crossing(rule: CompiledRule, values: Mapping[str, Any]) -> float | None:
    raw = values[rule.rule.field]
    if raw is None:
        return None
    # As float first: the decimal 0.30 and the threshold 0.3 are equal then, as their writers meant.
    value = float(raw)
    return None if math.isnan(value) or not rule.crosses(value) else value


def _passes(rule: CompiledRule, program: cel.Program, values: Mapping[str, Any]) -> bool:
    known = {name: cel_value(values[name]) for name in rule.filter_fields if name in values}
    if rule.loops and (items := max(map(_items, known.values()), default=0)) > _MOST_ITEMS:
        raise FilterFailed(
            f"rule {rule.rule.name}: {rule.rule.when}: a field has {items} items, more than {_MOST_ITEMS}"
        )
    try:
        answer = program.execute(known)
    # The CEL library raises what its operators feel like: TypeError, ValueError, RuntimeError, ArithmeticError.
    except Exception as error:
        if _has_null(known):
            return False
        cure = "let it ask first whether it can, as `field != null && …` or `size(field) > 0 && …` does"
        raise FilterFailed(f"rule {rule.rule.name}: {rule.rule.when}: {error} ({cure})") from error
    if isinstance(answer, bool):
        return answer
    if _has_null(known):
        return False
    raise FilterFailed(f"rule {rule.rule.name}: {rule.rule.when}: is {answer!r}, neither true nor false: compare it")


def _has_null(value: Any) -> bool:
    match value:
        case None:
            return True
        case list():
            return any(_has_null(item) for item in value)
        case dict():
            return any(_has_null(item) for item in value.values())
        case _:
            return False


def _items(value: Any) -> int:
    """Of a list or a map, with those inside; 0 of anything else."""
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return len(inside) + sum(map(_items, inside))


def _alert(rule: CompiledRule, record: Record, value: float) -> AlertRaised:
    settings, values = rule.rule, record.values
    group_key = "/".join(as_text(values[field]) for field in settings.group_by)
    message = "".join(text + _formatted(values, field, spec) for text, field, spec in rule.message)
    named = {field: as_text(values[field]) for field in rule.named if values[field] is not None}
    size = sum(len(text.encode()) for text in (group_key, message, *named, *named.values()))
    if size > ALERT_TEXT_BYTES:
        raise TooLong(f"rule {settings.name}: the alert's texts have {size} bytes, at most {ALERT_TEXT_BYTES} fit")
    return AlertRaised(
        alert_id=uuid5(ALERTS, f"{settings.name}|{rule.version}|{record.coordinate}"),
        rule=settings.name,
        rule_version=rule.version,
        severity=settings.severity,
        group_key=group_key,
        message=message,
        topic=record.topic,
        coordinate=record.coordinate,
        occurred_at=record.occurred_at,
        field=settings.field,
        operator=settings.operator,
        threshold=settings.threshold,
        value=value,
        values=named,
        cooldown_seconds=settings.cooldown,
    )


def _formatted(values: Mapping[str, Any], field: str | None, spec: str) -> str:
    if field is None:
        return ""
    value = values[field]
    return format(value, spec) if spec and value is not None else as_text(value)


def as_text(value: Any) -> str:
    """A field's value as people read it; instants as RFC 3339 in UTC, lists with commas, null as `unknown`."""
    match value:
        case None:
            return UNKNOWN
        case bool():
            return "true" if value else "false"
        case datetime():
            return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
        case list() | tuple():
            return ", ".join(as_text(item) for item in value)
        case dict():
            return ", ".join(f"{key}={as_text(item)}" for key, item in value.items())
        case _:
            return str(value)


def cel_value(value: Any) -> Any:
    """A field's value as CEL knows it: decimals are doubles, dates are timestamps at midnight UTC."""
    match value:
        case None | bool() | int() | float() | str() | bytes() | datetime():
            return value
        case Decimal():
            return float(value)
        case date():
            return datetime.combine(value, time(), UTC)
        case list() | tuple():
            return [cel_value(item) for item in value]
        case dict():
            return {key: cel_value(item) for key, item in value.items()}
        case _:
            return str(value)

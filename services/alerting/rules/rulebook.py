"""`Rulebook`: the rules of one file, checked against the contracts."""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from contracts import topics
from contracts.definitions.catalog import Catalog
from contracts.definitions.contract_file import as_contract, bytes_of, line_of
from contracts.records.limits import ADDED_BYTES, RAW_BYTES
from services.alerting.rules.evaluate import BOUND, CompiledRule, cel_value, compile_filter, compile_rule, template
from services.alerting.rules.fields import FieldType, fields_of
from services.alerting.rules.rule import Rule

SERVICE = "alerting"

# CEL's standard functions and the macros' own; `program.functions()` names operators too, which are no words.
# fmt: off
_FUNCTIONS = frozenset({
    "bool", "bytes", "contains", "double", "duration", "dyn", "endsWith", "getDate", "getDayOfMonth", "getDayOfWeek",
    "getDayOfYear", "getFullYear", "getHours", "getMilliseconds", "getMinutes", "getMonth", "getSeconds", "int",
    "matches", "max", "min", "size", "startsWith", "string", "timestamp", "type", "uint",
})
# fmt: on

_MOST_PROBLEMS = 100
_MOST_BYTES = RAW_BYTES - ADDED_BYTES
"""A record on `rules.activated.v1` holds all rules of a topic."""

_LONGEST_NAME = 100
_WIDE = re.compile(r"[0-9]{3}")
"""In a format: `{station:999999999}` is a gigabyte of blanks."""


class RulebookError(Exception):
    """A rules file that can't be used; one line for each problem: file, line, rule, field, what is wrong."""


class _RulesFile(BaseModel):
    model_config = ConfigDict(extra="forbid")

    rules: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Rulebook:
    """The rules in the file's order, by topic; `version` is that of the file's content."""

    version: str
    by_topic: dict[str, tuple[CompiledRule, ...]]

    @property
    def rules(self) -> list[Rule]:
        """Every rule, topic by topic."""
        return [compiled.rule for rules in self.by_topic.values() for compiled in rules]


def load_rulebook(path: Path, catalog: Catalog) -> Rulebook:
    """Read and check a rules file. Raises RulebookError with the problems found, a hundred or so at most, ContractError never."""
    try:
        data = bytes_of(path)
    except OSError as error:
        raise RulebookError(f"{path}: not readable: {error}") from None
    content, problems = as_contract(data, _RulesFile, path.name)
    if content is None:
        where = [f"{path}:{problem.line or 1}: {problem.problem}: {problem.cure}" for problem in problems]
        raise RulebookError("\n".join(where))
    tree = yaml.compose(data, yaml.CSafeLoader)
    assert tree is not None
    found: list[str] = []
    by_topic: dict[str, list[CompiledRule]] = {}
    first_line: dict[str, int] = {}
    for index, raw in enumerate(content.rules):
        if len(found) >= _MOST_PROBLEMS:
            break
        name = raw.get("name")
        if not isinstance(name, str) or len(name) > _LONGEST_NAME:
            name = f"number {index + 1}"
        rule, wrong = _read(raw, catalog)
        if rule is not None:
            line = line_of(tree, ("rules", index, "name"))
            if rule.name in first_line:
                wrong.append(("name", f"'{rule.name}' is the name of the rule on line {first_line[rule.name]} too"))
            first_line.setdefault(rule.name, line)
        for field, text_ in wrong:
            found.append(f"{path}:{line_of(tree, ('rules', index, field))}: rule {name}: {field}: {text_}")
        if rule is not None and not wrong:
            by_topic.setdefault(rule.topic, []).append(compile_rule(rule))
    for topic, rules in by_topic.items():
        size = sum(len(compiled.rule.version) + len(compiled.rule.model_dump_json().encode()) for compiled in rules)
        if size > _MOST_BYTES:
            found.append(
                f"{path}:1: the rules of {topic} have {size:,} bytes, and at most {_MOST_BYTES:,} can be put in force: shorten them, or "
                "make one of several"
            )
    if found:
        raise RulebookError("\n".join(found))
    version = hashlib.sha256(data).hexdigest()[:12]
    return Rulebook(version, {topic: tuple(rules) for topic, rules in by_topic.items()})


def _read(raw: dict[str, Any], catalog: Catalog) -> tuple[Rule | None, list[tuple[str, str]]]:
    """The rule if it has the right shape, and its problems as (key, what is wrong)."""
    try:
        rule = Rule.model_validate(raw)
    except ValidationError as error:
        return None, [
            _shape_problem(detail["type"], detail["loc"], detail["msg"]) for detail in error.errors()[:_MOST_PROBLEMS]
        ]
    return rule, list(_problems(rule, catalog))


def _shape_problem(kind: str, location: tuple[int | str, ...], message: str) -> tuple[str, str]:
    key = str(location[0])
    if kind == "extra_forbidden":
        return key, f"unknown key{_instead(key, Rule.model_fields)}"
    if kind == "missing":
        return key, "missing"
    return key, message[:1].lower() + message[1:]


def _problems(rule: Rule, catalog: Catalog) -> Iterator[tuple[str, str]]:
    if rule.topic not in catalog.topics:
        yield "topic", f"no contract for '{rule.topic}'{_instead(rule.topic, catalog.topics)}"
        return
    if rule.topic == topics.ALERTS_RAISED.name:
        yield "topic", f"no rule is asked about '{rule.topic}', where the alerts themselves are"
    elif SERVICE not in catalog.topic(rule.topic).consumers:
        yield "topic", f"the contract of '{rule.topic}' doesn't list '{SERVICE}' as a consumer"
    fields = fields_of(catalog.schema(rule.topic))
    for field in (rule.field, *rule.group_by):
        if field not in fields:
            key = "field" if field == rule.field else "group_by"
            yield key, f"'{rule.topic}' has no field '{field}'{_instead(field, fields)}"
    if rule.field in fields and not fields[rule.field].numeric:
        yield "field", f"'{rule.field}' is no number but {fields[rule.field].name}"
    for problem in _message_problems(rule.message, fields):
        yield "message", problem
    if rule.when is not None:
        for problem in _filter_problems(rule.when, fields):
            yield "when", problem


def _message_problems(message: str, fields: dict[str, FieldType]) -> Iterator[str]:
    try:
        parts = template(message)
    except ValueError as error:
        yield str(error)
        return
    for _, field, spec in parts:
        if field is None:
            continue
        if field not in fields:
            yield f"no field '{field}'{_instead(field, fields)}"
            continue
        if _WIDE.search(spec):
            yield f"'{{{field}:{spec}}}': a width or precision of three digits or more"
            continue
        try:
            format(fields[field].sample, spec)
        except (ValueError, TypeError) as error:
            yield f"'{{{field}:{spec}}}': {error}"


def _filter_problems(when: str, fields: dict[str, FieldType]) -> Iterator[str]:
    try:
        program = compile_filter(when)
    except ValueError as error:
        yield " ".join(str(error).split())
        return
    names = program.references()
    bound = set(BOUND.findall(when))
    unknown = [
        *(f"no field '{name}'{_instead(name, fields)}" for name in names["variables"] if name not in {*fields, *bound}),
        *(f"no function '{name}'" for name in names["functions"] if name.isidentifier() and name not in _FUNCTIONS),
    ]
    if unknown:
        yield from unknown
        return
    # One made-up record finds what a filter can never do, such as comparing a number with a text.
    try:
        answer = program.execute({name: cel_value(field.sample) for name, field in fields.items()})
    except TypeError as error:
        kinds = ", ".join(f"{name} is {fields[name].name}" for name in names["variables"] if name in fields)
        yield f"{str(error).partition('.')[0].removeprefix('No such overload: ')} ({kinds})"
    except (ValueError, RuntimeError, ArithmeticError, LookupError):
        pass  # depends on the values, and these were made up
    else:
        if not isinstance(answer, bool):
            yield f"is neither true nor false but {type(answer).__name__}"


def _instead(name: str, known: Any) -> str:
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean '{close[0]}'?" if close else ""

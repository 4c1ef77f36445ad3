"""`Thresholds`: whether an Avro body may cross any of the rules' thresholds; the one question asked of every record."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Self

from contracts.records.wire import FRAME_BYTES
from services.alerting.rules.evaluate import CompiledRule
from services.alerting.rules.glance import Field, fields_up_to, pattern_of

_MOST_REMEMBERED = 10_000
"""Different values of a field whose answers are kept."""


class Thresholds:
    """Made for one writer's schema."""

    def __init__(self, fields: Sequence[Field], rules: Iterable[CompiledRule]) -> None:
        by_field: dict[str, list[CompiledRule]] = {}
        for rule in rules:
            by_field.setdefault(rule.rule.field, []).append(rule)
        self._match = pattern_of(fields, by_field).match
        self._answers = [_Answers(field, by_field[field.name]) for field in fields if field.name in by_field]

    @classmethod
    def of(cls, schema_fields: Iterable[Any], rules: Sequence[CompiledRule]) -> Self | None:
        """None where the fields can't be read this way."""
        fields = fields_up_to(schema_fields, (rule.rule.field for rule in rules))
        return None if fields is None else cls(fields, rules)

    def may_be_crossed(self, body: bytes) -> bool:
        """False only if no threshold is crossed."""
        found = self._match(body, FRAME_BYTES)
        if found is None:
            return True
        for answers, raw in zip(self._answers, found.groups(), strict=True):
            if answers[raw]:
                return True
        return False


class _Answers(dict[bytes | None, bool]):
    """By a field's bytes: whether its value crosses one of the rules' thresholds. Most values come again and again."""

    def __init__(self, field: Field, rules: list[CompiledRule]) -> None:
        super().__init__()
        self._field = field
        self._rules = rules

    def __missing__(self, raw: bytes | None) -> bool:
        if len(self) >= _MOST_REMEMBERED:
            self.clear()
        value = self._field.value(raw)
        answer = value is not None and any(rule.crosses(float(value)) for rule in self._rules)
        self[raw] = answer
        return answer

"""`RulesInForce`: the rules of one topic, made ready for its records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from services.alerting.rules.evaluate import CompiledRule
from services.alerting.rules.rulebook import Rulebook
from services.alerting.rules.screen import Screen


@dataclass(frozen=True, eq=False, slots=True)
class RulesInForce:
    """Rules with their screen; `version` is that of the rules file which they came with."""

    version: str
    rules: tuple[CompiledRule, ...]
    screen: Screen

    @classmethod
    def of(cls, rulebook: Rulebook, topic: str, schema_by_id: Callable[[int], str]) -> Self:
        """The topic's rules in the rulebook; there may be none."""
        rules = rulebook.by_topic.get(topic, ())
        return cls(rulebook.version, rules, Screen(rules, schema_by_id))

    def is_of(self, rulebook: Rulebook) -> bool:
        """Whether the rules came with this very rulebook."""
        return self.version == rulebook.version

    def same_as(self, other: RulesInForce) -> bool:
        """Whether these rules do the same as the others."""
        return [rule.version for rule in self.rules] == [rule.version for rule in other.rules]

"""`RulesHistory`: which alert rules applied to which records."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pydantic import ValidationError

from contracts.events import RulesActivated
from services.alerting.rules.rule import Rule
from services.audit.values.place import ENDLESS


@dataclass(frozen=True, slots=True)
class RuleUse:
    """A rule in one partition. `ranges` of offsets (start, end): it had to be asked. From `since` on it may have been: a
    worker that was replaced can have evaluated some of the records which the rules of its successor are for.
    """

    rule: Rule
    since: int
    ranges: tuple[tuple[int, int], ...]

    def was_due(self, offset: int) -> bool:
        """Whether the record had to be evaluated with it."""
        return any(start <= offset < end for start, end in self.ranges)


class RulesHistory:
    """By what alerting has recorded; where it has recorded nothing, the rules file's rules count from the first record on."""

    def __init__(self, by_file: Mapping[str, Sequence[Rule]], events: Iterable[RulesActivated] = ()) -> None:
        """`by_file`: the rules in the file by topic; `events` in their topic's order."""
        self._by_file = by_file
        self._events: dict[tuple[str, int], list[RulesActivated]] = defaultdict(list)
        for event in events:
            self._events[event.topic, event.partition].append(event)

    def with_events(self, events: Iterable[RulesActivated]) -> RulesHistory:
        """With these in place of its own."""
        return RulesHistory(self._by_file, events)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RulesHistory) and self._events == other._events

    __hash__ = None  # type: ignore[assignment]

    def recorded_from(self, topic: str, partition: int) -> int | None:
        """The first offset for which rules are recorded; None if none are."""
        events = self._events.get((topic, partition))
        return min(event.from_offset for event in _of_owners(events)) if events else None

    def uses(self, topic: str, partition: int) -> tuple[RuleUse, ...]:
        """Every rule that any record of the partition may have been evaluated with, but those of `forgotten`."""
        events = self._events.get((topic, partition))
        if not events:
            return tuple(RuleUse(rule, 0, ((0, ENDLESS),)) for rule in self._by_file.get(topic, ()))
        ranges = defaultdict(list)
        for start, end, rules in _in_force(events):
            for version in rules:
                ranges[version].append((start, end))
        return tuple(
            RuleUse(
                rule,
                min(event.from_offset for event in events if version in event.rules),
                tuple(ranges[version]),
            )
            for version, rule in self._recorded(topic, partition).items()
            if rule is not None
        )

    def forgotten(self, topic: str, partition: int) -> frozenset[str]:
        """Versions of recorded rules that are none by today's `Rule`."""
        recorded = self._recorded(topic, partition)
        return frozenset(version for version, rule in recorded.items() if rule is None)

    def _recorded(self, topic: str, partition: int) -> dict[str, Rule | None]:
        events = self._events.get((topic, partition), ())
        texts = {version: text for event in events for version, text in event.rules.items()}
        return {version: _rule(text) for version, text in texts.items()}

    def topics(self) -> set[str]:
        """Those whose records any rule is, or was, about."""
        recorded = {topic for (topic, _), events in self._events.items() if any(event.rules for event in events)}
        return recorded | {topic for topic, rules in self._by_file.items() if rules}


def _rule(text: str) -> Rule | None:
    try:
        return Rule.model_validate_json(text)
    except ValidationError:
        return None


def _in_force(events: Sequence[RulesActivated]) -> list[tuple[int, int, Mapping[str, str]]]:
    """Ranges of offsets and their rules: a later event takes the place of all that begin where it does, or behind it."""
    starts: list[tuple[int, Mapping[str, str]]] = []
    for event in _of_owners(events):
        starts = [(start, rules) for start, rules in starts if start < event.from_offset]
        starts.append((event.from_offset, event.rules))
    ends = [start for start, _ in starts[1:]] + [ENDLESS]
    return [(start, end, rules) for (start, rules), end in zip(starts, ends, strict=True)]


def _of_owners(events: Sequence[RulesActivated]) -> list[RulesActivated]:
    """Without those that landed when their worker had lost the partition: it was in an older generation of the group.

    The clock tells them from those of a group that was made anew, whose generations begin again.
    """
    counted: list[RulesActivated] = []
    for event in events:
        if not counted or not _is_overtaken(event, counted[-1]):
            counted.append(event)
    return counted


def _is_overtaken(event: RulesActivated, earlier: RulesActivated) -> bool:
    if event.generation is None or earlier.generation is None:
        return False
    return event.generation < earlier.generation and event.activated_at < earlier.activated_at

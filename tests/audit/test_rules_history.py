"""Which rule a record had to be asked by."""

from __future__ import annotations

from datetime import UTC, datetime

from contracts.events import RulesActivated, Severity
from services.alerting.rule import Rule
from services.audit.rules_history import RulesHistory


def a_rule(threshold: float) -> Rule:
    return Rule(
        name="late", description="x", topic="t", field="delay", operator=">=", threshold=threshold,
        severity=Severity.info, message="late",
    )  # fmt: skip


def activated(from_offset: int, threshold: float, *, topic: str = "t", partition: int = 0) -> RulesActivated:
    rule = a_rule(threshold)
    return RulesActivated(
        topic=topic,
        partition=partition,
        from_offset=from_offset,
        activated_at=datetime(2026, 1, 1, tzinfo=UTC),
        rules_version="1" * 12,
        rules={rule.version: rule.model_dump_json()},
    )


def due(history: RulesHistory, offset: int) -> list[float]:
    """The thresholds of the rules that the record had to be asked by."""
    return [use.rule.threshold for use in history.uses("t", 0) if use.was_due(offset)]


def test_a_record_is_asked_by_the_last_rules_that_begin_at_it_or_before() -> None:
    history = RulesHistory({}, [activated(10, 1), activated(30, 2), activated(20, 3)])
    assert [due(history, offset) for offset in (9, 10, 19, 20, 40)] == [[], [1], [1], [3], [3]]


def test_other_partitions_and_topics_do_not_count() -> None:
    history = RulesHistory({}, [activated(0, 1), activated(1, 2, partition=1), activated(1, 3, topic="other")])
    assert due(history, 7) == [1]


def test_rules_that_were_replaced_may_have_been_asked_from_where_they_began() -> None:
    history = RulesHistory({}, [activated(10, 1), activated(30, 2), activated(20, 3)])
    assert {use.rule.threshold: use.since for use in history.uses("t", 0)} == {1: 10, 2: 30, 3: 20}


def test_where_nothing_is_recorded_the_file_counts_from_the_first_record_on() -> None:
    history = RulesHistory({"t": [a_rule(1)]}, [])
    assert (due(history, 0), history.recorded_from("t", 0)) == ([1], None)

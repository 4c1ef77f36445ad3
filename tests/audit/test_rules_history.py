"""Which rule a record had to be asked by."""

from __future__ import annotations

from datetime import UTC, datetime

from contracts.events import RulesActivated, Severity
from services.alerting.rules.rule import Rule
from services.audit.records.rules_history import RulesHistory


def a_rule(threshold: float) -> Rule:
    return Rule(
        name="late", description="x", topic="t", field="delay", operator=">=", threshold=threshold,
        severity=Severity.info, message="late",
    )  # fmt: skip


def activated(
    from_offset: int,
    threshold: float,
    *,
    topic: str = "t",
    partition: int = 0,
    generation: int | None = None,
    second: int = 0,
) -> RulesActivated:
    rule = a_rule(threshold)
    return RulesActivated(
        topic=topic,
        partition=partition,
        from_offset=from_offset,
        activated_at=datetime(2026, 1, 1, second=second, tzinfo=UTC),
        rules_version="1" * 12,
        rules={rule.version: rule.model_dump_json()},
        generation=generation,
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


def test_rules_told_late_by_a_worker_that_had_lost_the_partition_replace_none() -> None:
    of_the_next = activated(10, 2, generation=8, second=9)
    late = activated(10, 1, generation=7, second=1)
    history = RulesHistory({}, [activated(0, 3, generation=7), of_the_next, late])
    assert [due(history, offset) for offset in (9, 10, 40)] == [[3], [2], [2]]
    # That worker may have evaluated some records with them all the same.
    assert {use.rule.threshold: use.since for use in history.uses("t", 0)} == {3: 0, 2: 10, 1: 10}


def test_the_generations_of_a_group_made_anew_begin_again() -> None:
    history = RulesHistory({}, [activated(10, 1, generation=8), activated(20, 2, generation=1, second=5)])
    assert [due(history, offset) for offset in (10, 20)] == [[1], [2]]


def test_a_worker_whose_clock_is_behind_takes_over_all_the_same() -> None:
    history = RulesHistory({}, [activated(10, 1, generation=8, second=5), activated(20, 2, generation=9)])
    assert [due(history, offset) for offset in (10, 20)] == [[1], [2]]


def test_where_nothing_is_recorded_the_file_counts_from_the_first_record_on() -> None:
    history = RulesHistory({"t": [a_rule(1)]}, [])
    assert (due(history, 0), history.recorded_from("t", 0)) == ([1], None)

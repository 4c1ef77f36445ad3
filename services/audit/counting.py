"""`aggregations`: what there is to compare of an aggregate, topic by topic, out of what was read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

import numpy as np

from contracts.definitions.topic import TopicContract
from contracts.records.missed_windows import MissedWindows
from services.audit.aggregates.aggregation import Aggregation
from services.audit.aggregates.letters import FOREVER, Known, Letters
from services.audit.cut import DAY_MS, Cut
from services.audit.declared.aggregates import Aggregate
from services.audit.hops.dead_letters import DeadLetter
from services.audit.intake import Intake
from services.audit.plan import Plan, Source
from services.audit.sources.broker import Broker
from services.audit.values.place import NOWHERE, places

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def kept_as(source: Source, raw: TopicContract) -> str:
    """Under which name the last clean audit left the newest event's time of a topic that an aggregate counts."""
    return source.name if raw == source.made_of else f"{source.name} of {raw.name}"


def aggregations(
    source: Source, plan: Plan, intake: Intake, cut: Cut, broker: Broker, newest_before: Mapping[str, int]
) -> list[Aggregation]:
    """Of one that somebody tells of, for each topic whose records it counts; `newest_before`, by `kept_as`, is what the last clean audit left. Reads the
    late records. Raises CouldNotAudit.
    """
    told, late_topic = source.aggregate, source.contract.late_topic
    assert told is not None and late_topic is not None
    late = intake.read_late(late_topic)
    coordinates = [each.coordinate if each.by == str(source.by) else "" for each in late]
    of = [places(raw.name, coordinates) for raw in source.origins]
    is_strange = np.logical_and.reduce([own == NOWHERE for own in of])
    found: list[Aggregation] = []
    for raw, counted, own in zip(source.origins, told.by_topic, of, strict=True):
        # What is of no record is told of the first topic.
        rows = np.flatnonzero((own != NOWHERE) | (is_strange & (not found)))
        letters = [(late[row], int(own[row])) for row in rows.tolist()]
        first = found[0] if found else None
        before = newest_before.get(kept_as(source, raw))
        found.append(_aggregation(source, raw, counted, letters, plan, intake, cut, broker, before, first))
    return found


def _aggregation(
    source: Source,
    contract: TopicContract,
    told: Aggregate,
    late: Sequence[tuple[DeadLetter, int]],
    plan: Plan,
    intake: Intake,
    cut: Cut,
    broker: Broker,
    newest_before: int | None,
    beside: Aggregation | None,
) -> Aggregation:
    """Of one of the topics, with the `late` records that are of it, and the first topic's `beside` the second."""
    target, by = source.contract, str(source.by)
    assert target.derivation is not None and target.late_topic is not None
    raw = next(each for each in plan.roots if each.contract == contract)
    dead = intake.set_aside(raw, raw, by)
    return Aggregation(
        cut.window(raw.name),
        intake.records[raw.name],
        intake.later[raw.name],
        cut.window(source.name),
        intake.records[source.name],
        letters_of(cut, contract.dead_letter_topic, dead, contract.dead_letters.retention_days),
        letters_of(cut, target.late_topic, late, target.dead_letters.retention_days),
        Known(
            latest=broker.ends(raw.name, stable=False),
            late_after_minutes=target.derivation.late_after_minutes or 0,
            watermark_of=target.derivation.watermark_of,
            purged=intake.purged(raw, raw, by),
            redriven=intake.redriven(raw),
            newest_before=newest_before,
            kept_since_ms=cut.at_ms - target.retention_days * DAY_MS,
            raw_kept_since_ms=cut.at_ms - contract.retention_days * DAY_MS,
        ),
        counts=told.counts,
        appends=told.output == "append",
        longest_gap=None if told.window.gap is None else told.window.gap.longest,
        beside=beside,
    )


def _over(missed: MissedWindows | None) -> int:
    """Up to when windows are over, in microseconds since 1970, by what a late record says of those that it missed."""
    return FOREVER if missed is None else (missed.last - _EPOCH) // timedelta(microseconds=1)


def letters_of(cut: Cut, topic: str, found: Sequence[tuple[DeadLetter, int]], kept_days: int) -> Letters:
    """What was found on a topic, each with the place of its raw record, as arrays; letters are kept for so many days."""
    return Letters(
        topic,
        np.array([each.at for each, _ in found], np.int64),
        np.array([place for _, place in found], np.int64),
        np.array([each.payload for each, _ in found], np.uint64),
        np.array([_over(each.missed) for each, _ in found], np.int64),
        any(span.low > 0 for span in cut.window(topic).spans.values()),
        cut.at_ms - kept_days * DAY_MS,
    )

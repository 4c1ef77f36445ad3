"""`aggregation`: what there is to compare of an aggregate, out of what was read."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import numpy as np

from contracts.records.missed_windows import MissedWindows
from services.audit.aggregates.aggregation import Aggregation
from services.audit.aggregates.letters import FOREVER, Known, Letters
from services.audit.cut import DAY_MS, Cut
from services.audit.hops.dead_letters import DeadLetter
from services.audit.intake import Intake
from services.audit.plan import Plan, Source
from services.audit.sources.broker import Broker
from services.audit.values.place import NOWHERE, places

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def aggregation(
    source: Source, plan: Plan, intake: Intake, cut: Cut, broker: Broker, newest_before: int | None
) -> Aggregation:
    """Of one that somebody tells of; `newest_before` is what the last clean audit left. Reads the late records. Raises CouldNotAudit."""
    told, contract = source.aggregate, source.contract
    assert told is not None and contract.derivation is not None and contract.late_topic is not None
    raw = next(each for each in plan.roots if each.contract == source.made_of)
    by = str(source.by)
    late = intake.read_late(contract.late_topic)
    named = places(raw.name, (each.coordinate for each in late)).tolist()
    of = [place if each.by == by else NOWHERE for each, place in zip(late, named, strict=True)]
    dead = intake.set_aside(raw, raw, by)
    return Aggregation(
        cut.window(raw.name),
        intake.records[raw.name],
        intake.later[raw.name],
        cut.window(source.name),
        intake.records[source.name],
        letters_of(cut, raw.contract.dead_letter_topic, dead, raw.contract.dead_letters.retention_days),
        letters_of(cut, contract.late_topic, list(zip(late, of, strict=True)), contract.dead_letters.retention_days),
        Known(
            latest=broker.ends(raw.name, stable=False),
            late_after_minutes=contract.derivation.late_after_minutes or 0,
            purged=intake.purged(raw, raw, by),
            redriven=intake.redriven(raw),
            newest_before=newest_before,
            kept_since_ms=cut.at_ms - contract.retention_days * DAY_MS,
            raw_kept_since_ms=cut.at_ms - raw.contract.retention_days * DAY_MS,
        ),
        counts=told.counts,
        appends=told.output == "append",
        has_sessions=told.window.gap is not None,
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

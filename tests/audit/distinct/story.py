"""What lies on the topics of distinct events, as a pipeline in plain Python makes it: `Story`, `a_story`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from services.audit.aggregates.letters import Known
from services.audit.distinct.deduplication import Deduplication
from services.audit.joins.side import Given
from services.audit.records.groups import NEVER
from services.audit.records.pairs import ALONE, Halves, Pairs
from services.audit.records.records import Records
from services.audit.records.window import Span, Window
from services.audit.values.field_sets import UNKNOWN
from services.audit.values.place import NOWHERE, code
from tests.audit.joins.story import (
    LATE_AFTER,
    MINUTE,
    TOPICS,
    Batches,
    Letter,
    Place,
    Raw,
    digest,
    found_by,
    halves_of,
    letters_of,
    noted_by,
)
from tests.audit.records_at import records_at

RAW = TOPICS[0]


@dataclass(frozen=True)
class Once:
    """A record that was let through: the place that it names, and what it says. Its own key is the first letter of the event's `name`."""

    partition: int
    offset: int
    first: Place
    name: str
    minute: int
    says: str
    sent_ms: int = 0
    is_readable: bool = True
    has_own_key: bool = True
    is_redriven: bool = False
    is_older: bool = False

    def __str__(self) -> str:
        return f"made/{self.partition}/{self.offset}"


@dataclass(frozen=True)
class Story:
    """What lies on the topics: `raw` up to the cut and `later`, what was let through, and letters. The watermark and what is known beside."""

    raw: tuple[Raw, ...] = ()
    later: tuple[Raw, ...] = ()
    made: tuple[Once, ...] = ()
    dead: tuple[Letter, ...] = ()
    late: tuple[Letter, ...] = ()
    watermark: int | None = None
    begun_ms: int = 0
    low: int = 0
    made_low: int = 0
    known: dict[str, Any] = field(default_factory=dict)
    before: Story | None = None
    """At the last clean audit."""

    def deduplication(self) -> Deduplication:
        starts = self._starts().get("made", {0: 0, 1: 0})
        audited = {0: 0, 1: 0} if self.before is None else self.before._made_ends()
        ends = self._made_ends()
        low = {p: max(self.made_low, starts[p]) for p in (0, 1)}
        return Deduplication(
            self._given(),
            Window("made", {p: Span(self.made_low, audited[p], ends[p], starts[p]) for p in (0, 1)}),
            [records_of([each for each in self.made if each.offset >= low[each.partition]])],
            letters_of("made.late", [each for each in self.late if each.topic is None]),
            watermark=NEVER if self.watermark is None else self.watermark * MINUTE,
            begun_ms=self.begun_ms,
            is_rebuilt=self.before is not None and self.before.deduplication().is_rebuilt,
        )

    def _made_ends(self) -> dict[int, int]:
        return {p: max([self.made_low, *(m.offset + 1 for m in self.made if m.partition == p)]) for p in (0, 1)}

    def _starts(self) -> dict[str, dict[int, int]]:
        """By topic from where an audit reads that begins with what the last one left."""
        return {} if self.before is None else self.before.deduplication().open()

    def found(self) -> set[tuple[str, str]]:
        return found_by(self.deduplication())

    def noted(self, text: str) -> int:
        return noted_by(self.deduplication(), text)

    def without(self, *made: Once) -> Story:
        return dataclasses.replace(self, made=tuple(each for each in self.made if each not in made))

    def with_one(self, of: Once, **changes: Any) -> tuple[Story, Once]:
        """One record more, like another, behind all of its partition."""
        partition = changes.get("partition", of.partition)
        end = max([0, *(each.offset + 1 for each in self.made if each.partition == partition)])
        sent_ms = max([0, *(each.sent_ms for each in self.made)]) + 1
        more = dataclasses.replace(of, **{"offset": end, "sent_ms": sent_ms} | changes)
        return dataclasses.replace(self, made=(*self.made, more)), more

    def _given(self) -> Given:
        starts = self._starts().get(RAW, {0: 0, 1: 0})
        here = [each for each in self.raw if each.offset >= max(self.low, starts[each.partition])]
        ends = {p: max([self.low, *(r.offset + 1 for r in self.raw if r.partition == p)]) for p in (0, 1)}
        latest = {p: max([ends[p], *(r.offset + 1 for r in self.later if r.partition == p)]) for p in (0, 1)}
        known: dict[str, Any] = dict(self.known)
        if self.before is not None:
            (known["newest_before"],) = self.before.deduplication().newest
        return Given(
            Window(RAW, {p: Span(self.low, starts[p], end, 0) for p, end in ends.items()}),
            [halves_of(here)],
            [halves_of(self.later)],
            letters_of(f"{RAW}.dlq", [each for each in self.dead if each.topic is not None]),
            letters_of("made.late", [each for each in self.late if each.topic is not None]),
            Known(latest, LATE_AFTER, **known),
        )


def records_of(made: Sequence[Once]) -> Records:
    made = sorted(made, key=lambda each: (each.partition, each.offset))
    count = len(made)
    own = Halves(
        np.array([digest(each.name) if each.is_readable else 0 for each in made], np.uint64),
        np.array([each.minute * MINUTE if each.is_readable else NEVER for each in made], np.int64),
        np.array([digest(each.says) for each in made], np.uint64),
        np.zeros(count, np.bool_),
    )
    pairs = Pairs(
        np.array([code(*each.first) if each.first[0] >= 0 else NOWHERE for each in made], np.int64),
        np.full(count, ALONE),
        own.says,
        np.zeros(count, np.uint64),
        np.array([each.has_own_key for each in made], np.bool_),
    )
    return records_at(
        [code(each.partition, each.offset) for each in made],
        [each.sent_ms for each in made],
        [each.is_readable for each in made],
        np.array([digest(each.name[:1]) for each in made], np.uint64),
        pairs=pairs,
        halves={"made": own},
        redriven=np.array([each.is_redriven for each in made], np.bool_),
        compared=np.array([UNKNOWN if each.is_older else 0 for each in made], np.int8),
    )


class Pipeline(Batches[Once]):
    """Lets each event through once."""

    def empty(self) -> None:
        self._state: dict[str, int] = {}

    def restart(self) -> None:
        self._newest = NEVER

    def take(self, batch: Sequence[Raw]) -> None:
        for each in sorted(batch, key=lambda each: each.place):
            if not each.is_good:
                self._set_aside(self.dead, each)
                continue
            self._newest = max(self._newest, each.minute)
            if each.is_left_out:
                continue
            if each.minute <= self.before:
                self._set_aside(self.late, each)
            elif each.key not in self._state:
                self._state[each.key] = each.minute + LATE_AFTER
                self._write(each)
        self._state = {name: until for name, until in self._state.items() if until > self.watermark}
        self.before = self.watermark
        if self._newest != NEVER:
            self.watermark = max(self.watermark, self._newest - LATE_AFTER)

    def _write(self, of: Raw) -> None:
        partition = digest(of.key[:1]) % 2
        self._clock_ms += 1
        one = Once(partition, self._next[partition], of.place, of.key, of.minute, of.says, self._clock_ms)
        self.made.append(one)
        self._next[partition] += 1


def a_story(
    raw: Sequence[Raw],
    cut: int,
    sizes: Sequence[int],
    *,
    ahead: int = 10**6,
    restarts: frozenset[int] = frozenset(),
    rebuilt_at: int | None = None,
) -> Story:
    """What a pipeline makes of raw records in batches of these sizes, again and again; the cut lies behind so many, and what is let through goes `ahead`
    of it by so many at most. It restarts before some batches, and, `rebuilt_at` so many records, begins again with the first one.
    """
    pipeline = Pipeline()
    watermark, begun_ms = pipeline.run(raw, cut + ahead, sizes, restarts=restarts, rebuilt_at=rebuilt_at)
    return Story(
        tuple(raw[:cut]),
        tuple(raw[cut:]),
        tuple(pipeline.made),
        tuple(pipeline.dead),
        tuple(pipeline.late),
        watermark,
        begun_ms,
    )

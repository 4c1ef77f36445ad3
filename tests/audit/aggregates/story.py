"""What lies on the topics of an aggregate, as a pipeline in plain Python makes it: `Story`, `a_story`."""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from services.audit.aggregates.aggregation import Aggregation
from services.audit.aggregates.letters import FOREVER, Known, Letters
from services.audit.records.groups import NEVER, Groups, Members
from services.audit.records.records import Records
from services.audit.records.window import Span, Window
from services.audit.values.finding import Finding
from services.audit.values.place import code
from tests.audit.records_at import records_at

WINDOW, LATE_AFTER, AHEAD = 15, 120, 60
"""Minutes."""
MINUTE = 60_000_000


@dataclass(frozen=True)
class Raw:
    """An event of `origin`, so many minutes after the first."""

    partition: int
    offset: int
    origin: str
    minute: int
    is_readable: bool = True
    is_left_out: bool = False
    sent_minute: int | None = None
    gap: int | None = None

    @property
    def at(self) -> int:
        return code(self.partition, self.offset)


@dataclass(frozen=True)
class Made:
    """A record of the aggregate: the group of `origin` from minute `begins` on has `count`."""

    partition: int
    offset: int
    origin: str
    begins: int
    count: int
    run: str
    batch: int
    key: str = ""
    id_of: str | None = None
    is_final: bool = False
    is_readable: bool = True
    length: int = WINDOW
    is_redriven: bool = False
    sent_ms: int | None = None

    @property
    def text(self) -> str:
        return self.key or f"{self.origin}/{self.begins}"


@dataclass(frozen=True)
class Story:
    """What lies on the topics: `raw` up to the cut and `later`, groups, and places of raw records as `dead` and `late`."""

    raw: tuple[Raw, ...] = ()
    later: tuple[Raw, ...] = ()
    made: tuple[Made, ...] = ()
    dead: tuple[int, ...] = ()
    late: tuple[int, ...] = ()
    over: dict[int, int] = field(default_factory=dict)
    low: int = 0
    audited: int = 0
    gone: dict[int, int] = field(default_factory=dict)
    """By partition an offset, if all before it is deleted."""
    made_low: int = 0
    lost_letters: bool = False
    known: dict[str, Any] = field(default_factory=dict)

    def aggregation(self, *, appends: bool = False) -> Aggregation:
        low = {p: max(self.low, self.gone.get(p, 0)) for p in (0, 1)}
        starts = {p: max(low[p], self.audited) for p in (0, 1)}
        raw = [each for each in sorted(self.raw, key=lambda each: each.at) if each.offset >= starts[each.partition]]
        ends = {p: max([starts[p], *(r.offset + 1 for r in self.raw if r.partition == p)]) for p in (0, 1)}
        latest = {p: max([ends[p], *(r.offset + 1 for r in self.later if r.partition == p)]) for p in (0, 1)}
        made_ends = {p: max([0, *(m.offset + 1 for m in self.made if m.partition == p)]) for p in (0, 1)}
        known = {"groups": 0} | self.known
        known.pop("groups")
        letters_since = known.pop("letters_since_ms", 0)
        return Aggregation(
            Window("raw", {p: Span(low[p], self.audited, end, self.audited) for p, end in ends.items()}),
            [records_of(raw)],
            [records_of(self.later)],
            Window("made", {p: Span(self.made_low, 0, end, 0) for p, end in made_ends.items()}),
            [groups_of(self.made)],
            self._letters("raw.dlq", self.dead, letters_since),
            self._letters("made.late", self.late, letters_since),
            Known(latest, LATE_AFTER, **known),
            appends=appends,
        )

    def found(self, **how: bool) -> set[tuple[str, str]]:
        return found(list(self.aggregation(**how).findings()))

    def _letters(self, topic: str, places: Sequence[int], kept_since_ms: int) -> Letters:
        return Letters(
            topic,
            np.arange(len(places), dtype=np.int64),
            np.array(places, np.int64),
            np.array([abs(place) for place in places], np.uint64),
            np.array([self.over[at] * MINUTE if at in self.over else FOREVER for at in places], np.int64),
            self.lost_letters,
            kept_since_ms,
        )


def found(findings: Sequence[Finding]) -> set[tuple[str, str]]:
    assert len(findings) == len({(each.kind, each.coordinate, each.detail) for each in findings})
    return {(each.kind, each.coordinate) for each in findings}


def _digest(text: str) -> int:
    return zlib.crc32(text.encode()) + 1


def records_of(raw: Sequence[Raw]) -> Records:
    count = len(raw)
    sent = [(each.minute if each.sent_minute is None else each.sent_minute) * 60_000 for each in raw]
    return records_at(
        [each.at for each in raw],
        sent,
        [each.is_readable for each in raw],
        np.zeros(count, np.uint64),
        members={
            "made": Members(
                np.array([_digest(each.origin) if each.is_readable else 0 for each in raw], np.uint64),
                np.array([each.minute * MINUTE if each.is_readable else NEVER for each in raw], np.int64),
                np.array([each.is_left_out for each in raw], np.bool_),
            )
        },
    )


def groups_of(made: Sequence[Made]) -> Records:
    made = sorted(made, key=lambda each: (each.partition, each.offset))
    groups = Groups(
        np.array([_digest(each.origin) for each in made], np.uint64),
        np.array([each.begins * MINUTE for each in made], np.int64),
        np.array([(each.begins + each.length) * MINUTE for each in made], np.int64),
        np.array([each.count for each in made], np.int64),
        np.array([each.is_final for each in made], np.bool_),
        np.array([_digest(each.run) for each in made], np.uint64),
        np.array([each.batch for each in made], np.int64),
        np.array([each.id_of in (None, each.text) for each in made], np.bool_),
        np.ones(len(made), np.bool_),
        {_digest(each.text): each.text for each in made},
    )
    key = np.array([_digest(each.text) for each in made], np.uint64)
    return records_at(
        [code(each.partition, each.offset) for each in made],
        [10**10 + each.offset if each.sent_ms is None else each.sent_ms for each in made],
        [each.is_readable for each in made],
        key,
        groups=groups,
        redriven=np.array([each.is_redriven for each in made], np.bool_),
    )


class Pipeline:
    """Counts in batches, as the real one does: what is late is so by the watermark of the batch before."""

    def __init__(self, *, appends: bool = False, slide: int = WINDOW) -> None:
        self._appends, self._slide = appends, slide
        self.made: list[Made] = []
        self.dead: list[int] = []
        self.late: list[int] = []
        self.over: dict[int, int] = {}
        self._next = {0: 0, 1: 0}
        self.begin("a")

    def begin(self, run: str) -> None:
        """With another run the state is empty, and what was set aside stays so."""
        self._run, self._batch, self._watermark, self._newest = run, 0, NEVER, NEVER
        self._state: dict[tuple[str, int], int] = defaultdict(int)
        self._written: set[tuple[str, int]] = set()

    def take(self, batch: Sequence[Raw]) -> None:
        """One batch, with a watermark behind it."""
        changed = set()
        for each in batch:
            sent = each.minute if each.sent_minute is None else each.sent_minute
            if not each.is_readable or each.minute > sent + AHEAD:
                self.dead.append(each.at)
                continue
            self._newest = max(self._newest, each.minute)
            if each.is_left_out:
                continue
            over = []
            for begins in range(each.minute // self._slide * self._slide, each.minute - WINDOW, -self._slide):
                if begins + WINDOW <= self._watermark:
                    over.append(begins + WINDOW)
                    continue
                self._state[each.origin, begins] += 1
                changed.add((each.origin, begins))
            if over:
                self.late.append(each.at)
                self.over[each.at] = max(over)
        self._watermark = max(self._watermark, self._newest - LATE_AFTER)
        if self._appends:
            final = {group for group in self._state if group[1] + WINDOW <= self._watermark}
            changed = final - self._written
            self._written |= final
        for origin, begins in sorted(changed):
            partition = _digest(origin) % 2
            count = self._state[origin, begins]
            self.made.append(
                Made(
                    partition,
                    self._next[partition],
                    origin,
                    begins,
                    count,
                    self._run,
                    self._batch,
                    is_final=self._appends,
                )
            )
            self._next[partition] += 1
        self._batch += 1


def a_story(
    raw: Sequence[Raw],
    cut: int,
    sizes: Sequence[int],
    *,
    appends: bool = False,
    ahead: int = 10**6,
    slide: int = WINDOW,
) -> Story:
    """What a pipeline makes of raw records in batches of these sizes, again and again; the cut lies behind so many, and the groups go `ahead`
    of it by so many at most.
    """
    pipeline = Pipeline(appends=appends, slide=slide)
    begin = number = 0
    while begin < min(len(raw), cut + ahead):
        size = sizes[number % len(sizes)]
        pipeline.take(raw[begin : begin + size])
        begin, number = begin + size, number + 1
    made, letters = tuple(pipeline.made), (tuple(pipeline.dead), tuple(pipeline.late))
    return Story(tuple(raw[:cut]), tuple(raw[cut:]), made, *letters, pipeline.over)


def numbered(events: Sequence[tuple[int, str, int, int, bool, bool]]) -> list[Raw]:
    """Partition, origin, minute, by how much that is ahead, whether it can be read and is left out; with the offsets that they get."""
    ends, sent, made = {0: 0, 1: 0}, {0: 0, 1: 0}, []
    for partition, origin, minute, ahead, is_readable, is_left_out in events:
        sent[partition] = max(sent[partition], minute - ahead)
        one = Raw(partition, ends[partition], origin, minute, is_readable, is_left_out and is_readable, sent[partition])
        made.append(one)
        ends[partition] += 1
    return made

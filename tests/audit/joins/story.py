"""What lies on the topics of a join, as a pipeline in plain Python makes it: `Story`, `a_story`."""

from __future__ import annotations

import dataclasses
import zlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np

from services.audit.aggregates.letters import FOREVER, Known, Letters
from services.audit.declared.joins import Apart, Half, Join
from services.audit.distinct.deduplication import Deduplication
from services.audit.joins.joining import Joining
from services.audit.joins.side import Given
from services.audit.records.groups import NEVER
from services.audit.records.pairs import ALONE, Halves, Pairs, nothing_said
from services.audit.records.records import Records
from services.audit.records.window import Span, Window
from services.audit.values.place import NOWHERE, code
from tests.audit.records_at import records_at

LEAST, MOST, LATE_AFTER, AHEAD = -10, 30, 60, 30
"""Minutes."""
MINUTE = 60_000_000
NOTHING = "nothing"
TOPICS = ("left", "right")

Place = tuple[int, int]
"""Partition, offset."""

_MadeT = TypeVar("_MadeT")


@dataclass(frozen=True)
class Raw:
    """An event with `key`, so many minutes after the first, on topic 0 or 1. Without a key nothing is equal to it."""

    topic: int
    partition: int
    offset: int
    key: str
    minute: int
    is_readable: bool = True
    is_left_out: bool = False
    sent_minute: int | None = None

    @property
    def place(self) -> Place:
        return self.partition, self.offset

    @property
    def says(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}/{self.key}"

    @property
    def is_good(self) -> bool:
        sent = self.minute if self.sent_minute is None else self.sent_minute
        return self.is_readable and self.minute <= sent + AHEAD

    @property
    def takes_part(self) -> bool:
        return self.is_good and not self.is_left_out

    def __str__(self) -> str:
        return f"{TOPICS[self.topic]}/{self.partition}/{self.offset}"


@dataclass(frozen=True)
class Made:
    """A joined record: the places that it names, None for a second that its id has none of, and what it says of both."""

    partition: int
    offset: int
    first: Place
    second: Place | None
    says_first: str
    says_second: str = NOTHING
    key: str = ""
    sent_ms: int = 0
    is_readable: bool = True
    has_own_key: bool = True
    is_redriven: bool = False

    def __str__(self) -> str:
        return f"made/{self.partition}/{self.offset}"


@dataclass(frozen=True)
class Letter:
    """Of the record at a place of a topic, or of none."""

    topic: int | None
    of: Place
    payload: int | None = None


@dataclass(frozen=True)
class Story:
    """What lies on the topics: `raw` up to the cut and `later`, pairs, and letters. The watermark and what is known beside."""

    raw: tuple[Raw, ...] = ()
    later: tuple[Raw, ...] = ()
    made: tuple[Made, ...] = ()
    dead: tuple[Letter, ...] = ()
    late: tuple[Letter, ...] = ()
    watermark: int | None = None
    how: Any = "left_outer"
    begun_ms: int = 0
    low: tuple[int, int] = (0, 0)
    made_low: int = 0
    lost_letters: bool = False
    known: dict[str, Any] = field(default_factory=dict)
    before: Story | None = None
    """At the last clean audit."""

    @property
    def join(self) -> Join:
        return Join(
            how=self.how,
            equal={"key": "key"},
            apart=Apart(least_minutes=LEAST, most_minutes=MOST),
            first=Half(fields=("key",)),
            second=Half(fields={"other": "key"}),
        )

    def joining(self) -> Joining:
        starts, ends = self._starts().get("made", {0: 0, 1: 0}), self._made_ends()
        audited = {0: 0, 1: 0} if self.before is None else self.before._made_ends()
        return Joining(
            self.join,
            (self._given(0), self._given(1)),
            Window("made", {p: Span(self.made_low, audited[p], ends[p], 0) for p in (0, 1)}),
            [pairs_of([each for each in self.made if each.offset >= starts[each.partition]], self.join)],
            letters_of("made.late", [each for each in self.late if each.topic is None], has_deleted=self.lost_letters),
            watermark=NEVER if self.watermark is None else self.watermark * MINUTE,
            begun_ms=self.begun_ms,
            is_rebuilt=self.before is not None and self.before.joining().is_rebuilt,
        )

    def _made_ends(self) -> dict[int, int]:
        return {p: max([0, *(m.offset + 1 for m in self.made if m.partition == p)]) for p in (0, 1)}

    def _starts(self) -> dict[str, dict[int, int]]:
        """By topic from where an audit reads that begins with what the last one left."""
        return {} if self.before is None else self.before.joining().open()

    def found(self) -> set[tuple[str, str]]:
        return found_by(self.joining())

    def noted(self, text: str) -> int:
        return noted_by(self.joining(), text)

    def without(self, *made: Made) -> Story:
        return dataclasses.replace(self, made=tuple(each for each in self.made if each not in made))

    def with_one(self, of: Made, **changes: Any) -> tuple[Story, Made]:
        """One record more, like another, behind all of its partition."""
        partition = changes.get("partition", of.partition)
        end = max([0, *(each.offset + 1 for each in self.made if each.partition == partition)])
        more = dataclasses.replace(of, **{"offset": end, "sent_ms": of.sent_ms + 1} | changes)
        return dataclasses.replace(self, made=(*self.made, more)), more

    def _given(self, topic: int) -> Given:
        low, name = self.low[topic], TOPICS[topic]
        starts = self._starts().get(name, {0: 0, 1: 0})
        own_raw = [each for each in self.raw if each.topic == topic]
        here = [each for each in own_raw if each.offset >= max(low, starts[each.partition])]
        later = [each for each in self.later if each.topic == topic]
        ends = {p: max([low, *(r.offset + 1 for r in own_raw if r.partition == p)]) for p in (0, 1)}
        latest = {p: max([ends[p], *(r.offset + 1 for r in later if r.partition == p)]) for p in (0, 1)}
        known: dict[str, Any] = dict(self.known)
        if self.before is not None:
            known["newest_before"] = self.before.joining().newest[topic]
        own = [[each for each in letters if each.topic == topic] for letters in (self.dead, self.late)]
        return Given(
            Window(name, {p: Span(low, starts[p], end, 0) for p, end in ends.items()}),
            [halves_of(here)],
            [halves_of(later)],
            letters_of(f"{name}.dlq", own[0], has_deleted=self.lost_letters),
            letters_of("made.late", own[1], has_deleted=self.lost_letters),
            Known(latest, LATE_AFTER, **known),
        )


def digest(text: str) -> int:
    return zlib.crc32(text.encode()) + 1


def found_by(made: Joining | Deduplication) -> set[tuple[str, str]]:
    """Kind and coordinate of each finding, none of which is told twice."""
    findings = list(made.findings())
    assert len(findings) == len({(each.kind, each.coordinate, each.detail) for each in findings})
    return {(each.kind, each.coordinate) for each in findings}


def noted_by(made: Joining | Deduplication, text: str) -> int:
    """Of how many records this is noted."""
    list(made.findings())
    return sum(tally.notes[text] for tally in made.tallies.values())


def letters_of(topic: str, letters: Sequence[Letter], *, has_deleted: bool = False) -> Letters:
    places = [NOWHERE if each.topic is None else code(*each.of) for each in letters]
    payloads = [abs(at) if each.payload is None else each.payload for at, each in zip(places, letters, strict=True)]
    return Letters(
        topic,
        np.arange(len(places), dtype=np.int64),
        np.array(places, np.int64),
        np.array(payloads, np.uint64),
        np.full(len(places), FOREVER),
        has_deleted,
        10**12,
    )


def halves_of(raw: Sequence[Raw]) -> Records:
    raw = sorted(raw, key=lambda each: each.place)
    sent = [(each.minute if each.sent_minute is None else each.sent_minute) * 60_000 for each in raw]
    halves = Halves(
        np.array([digest(each.key) if each.is_readable and each.key else 0 for each in raw], np.uint64),
        np.array([each.minute * MINUTE if each.is_readable else NEVER for each in raw], np.int64),
        np.array([digest(each.says) if each.is_readable else 0 for each in raw], np.uint64),
        np.array([each.is_left_out and each.is_readable for each in raw], np.bool_),
    )
    at, readable = [code(*each.place) for each in raw], [each.is_readable for each in raw]
    return records_at(at, sent, readable, np.zeros(len(raw), np.uint64), halves={"made": halves})


def pairs_of(made: Sequence[Made], join: Join) -> Records:
    made = sorted(made, key=lambda each: (each.partition, each.offset))
    nothing = int(nothing_said(join))
    says = [nothing if each.says_second == NOTHING else digest(each.says_second) for each in made]
    pairs = Pairs(
        np.array([code(*each.first) if each.first[0] >= 0 else NOWHERE for each in made], np.int64),
        np.array([_second(each.second) for each in made], np.int64),
        np.array([digest(each.says_first) for each in made], np.uint64),
        np.array(says, np.uint64),
        np.array([each.has_own_key for each in made], np.bool_),
    )
    key = np.array([digest(each.key) for each in made], np.uint64)
    at = [code(each.partition, each.offset) for each in made]
    redriven = np.array([each.is_redriven for each in made], np.bool_)
    readable = [each.is_readable for each in made]
    return records_at(at, [each.sent_ms for each in made], readable, key, pairs=pairs, redriven=redriven)


def _second(place: Place | None) -> int:
    if place is None:
        return ALONE
    return code(*place) if place[0] >= 0 else NOWHERE


class Batches(ABC, Generic[_MadeT]):
    """A pipeline that works in batches, as the real ones do: what is late is so by the watermark of the batch before; the state is cleaned by that of the
    batch.
    """

    def __init__(self) -> None:
        self.made: list[_MadeT] = []
        self.dead: list[Letter] = []
        self.late: list[Letter] = []
        self._aside: set[Raw] = set()
        self._next = {0: 0, 1: 0}
        self._clock_ms = 0
        self.begin()

    def begin(self) -> int:
        """A run with an empty state. What was set aside stays so. The time at which it begins."""
        self.watermark, self.before = NEVER, NEVER
        self._clock_ms += 1000
        self.empty()
        self.restart()
        return self._clock_ms

    @abstractmethod
    def empty(self) -> None:
        """Nothing is in the state."""

    @abstractmethod
    def restart(self) -> None:
        """The newest events of before are forgotten, and the watermark is kept."""

    @abstractmethod
    def take(self, batch: Sequence[Raw]) -> None:
        """One batch, with a watermark behind it."""

    def run(
        self, raw: Sequence[Raw], upto: int, sizes: Sequence[int], *, restarts: frozenset[int], rebuilt_at: int | None
    ) -> tuple[int | None, int]:
        """Take raw records in batches of these sizes, again and again, until it has so many at least. It restarts before some batches, and, `rebuilt_at` so
        many records, begins again with the first one. The watermark of the batch before the last, if there is one, and when the last run began, 0 for the first.
        """
        begin = number = begun_ms = 0
        while begin < min(len(raw), upto):
            if number in restarts:
                self.restart()
            size = sizes[number % len(sizes)]
            self.take(raw[begin : begin + size])
            written_up_to = self.before
            begin, number = begin + size, number + 1
            if rebuilt_at is not None and begin >= rebuilt_at:
                begin, rebuilt_at, begun_ms = 0, None, self.begin()
        return (None if number == 0 or written_up_to == NEVER else written_up_to), begun_ms

    def _set_aside(self, letters: list[Letter], of: Raw) -> None:
        if of not in self._aside:
            self._aside.add(of)
            letters.append(Letter(of.topic, of.place))


class Pipeline(Batches[Made]):
    """Joins."""

    def __init__(self, how: str) -> None:
        self._is_outer = how == "left_outer"
        super().__init__()

    def empty(self) -> None:
        self._state: tuple[dict[Raw, bool], dict[Raw, bool]] = ({}, {})

    def restart(self) -> None:
        self._newest = [NEVER, NEVER]

    def take(self, batch: Sequence[Raw]) -> None:
        joined: list[tuple[Raw, Raw | None]] = []
        for each in batch:
            if not each.is_good:
                self._set_aside(self.dead, each)
                continue
            self._newest[each.topic] = max(self._newest[each.topic], each.minute)
            if each.is_left_out:
                continue
            if each.minute <= self.before:
                self._set_aside(self.late, each)
                continue
            own, others = self._state[each.topic], self._state[1 - each.topic]
            own[each] = False
            for other in others:
                first, second = (each, other) if each.topic == 0 else (other, each)
                if is_pair(first, second):
                    own[each] = others[other] = True
                    joined.append((first, second))
        for raw, has_pair in [*self._state[0].items()]:
            if raw.minute + MOST < self.watermark:
                del self._state[0][raw]
                if not has_pair and self._is_outer:
                    joined.append((raw, None))
        for raw in [each for each in self._state[1] if each.minute - LEAST < self.watermark]:
            del self._state[1][raw]
        for first, found in joined:
            self._write(first, found)
        self.before = self.watermark
        if NEVER not in self._newest:
            self.watermark = max(self.watermark, min(self._newest) - LATE_AFTER)

    def _write(self, first: Raw, second: Raw | None) -> None:
        partition = digest(first.key) % 2
        self._clock_ms += 1
        place = None if second is None else second.place
        says = NOTHING if second is None else second.says
        self.made.append(
            Made(partition, self._next[partition], first.place, place, first.says, says, first.key, self._clock_ms)
        )
        self._next[partition] += 1


def is_pair(first: Raw, second: Raw) -> bool:
    return bool(first.key) and first.key == second.key and LEAST <= second.minute - first.minute <= MOST


def a_story(
    raw: Sequence[Raw],
    cut: int,
    sizes: Sequence[int],
    *,
    how: str = "left_outer",
    ahead: int = 10**6,
    restarts: frozenset[int] = frozenset(),
    rebuilt_at: int | None = None,
) -> Story:
    """What a pipeline makes of raw records in batches of these sizes, again and again; the cut lies behind so many, and the pairs go `ahead` of
    it by so many at most. It restarts before some batches, and, `rebuilt_at` so many records, begins again with the first one.
    """
    pipeline = Pipeline(how)
    watermark, begun_ms = pipeline.run(raw, cut + ahead, sizes, restarts=restarts, rebuilt_at=rebuilt_at)
    return Story(
        tuple(raw[:cut]),
        tuple(raw[cut:]),
        tuple(pipeline.made),
        tuple(pipeline.dead),
        tuple(pipeline.late),
        watermark,
        how,
        begun_ms,
    )


def numbered(events: Sequence[tuple[int, int, str, int, int, bool, bool]]) -> list[Raw]:
    """Topic, partition, key, minute, by how much that is ahead, whether it can be read and is left out; with the offsets that they get."""
    ends: dict[tuple[int, int], int] = {}
    sent: dict[tuple[int, int], int] = {}
    made = []
    for topic, partition, key, minute, ahead, is_readable, is_left_out in events:
        of = topic, partition
        sent[of] = max(sent.get(of, 0), minute - ahead)
        offset = ends.get(of, 0)
        made.append(Raw(topic, partition, offset, key, minute, is_readable, is_left_out and is_readable, sent[of]))
        ends[of] = offset + 1
    return made

"""Every fault planted between a raw topic and an aggregate is found, and nothing else is, whatever the batches were."""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from contracts.definitions.pipelines import pipeline_files
from services.alerting.rules.condition import Condition
from services.audit.counting import _over
from services.audit.declared.aggregates import Aggregate, load_aggregates
from services.audit.errors import CouldNotAudit
from services.audit.hops.aggregates import FOREVER, Aggregation, Known, Letters, covered, inside
from services.audit.hops.landed import Landing
from services.audit.records.groups import NEVER, NO_BATCH, Groups, Members
from services.audit.records.recompute import RIGHT
from services.audit.records.records import Records
from services.audit.records.window import Span, Window
from services.audit.sources.lake_table import Rows
from services.audit.values.digest import digests
from services.audit.values.finding import Finding
from services.audit.values.place import WHOLE, code
from tests import sample
from tests.sample.pipelines import load

WINDOW, LATE_AFTER, AHEAD = 15, 120, 60
"""Minutes."""
_MINUTE = 60_000_000


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
    made_low: int = 0
    lost_letters: bool = False
    known: dict[str, Any] = field(default_factory=dict)

    def aggregation(self, *, appends: bool = False) -> Aggregation:
        raw = [
            each for each in sorted(self.raw, key=lambda each: each.at) if each.offset >= max(self.low, self.audited)
        ]
        ends = {p: max([self.low, self.audited, *(r.offset + 1 for r in self.raw if r.partition == p)]) for p in (0, 1)}
        latest = {p: max([ends[p], *(r.offset + 1 for r in self.later if r.partition == p)]) for p in (0, 1)}
        made_ends = {p: max([0, *(m.offset + 1 for m in self.made if m.partition == p)]) for p in (0, 1)}
        known = {"groups": 0} | self.known
        known.pop("groups")
        letters_since = known.pop("letters_since_ms", 0)
        return Aggregation(
            Window("raw", {p: Span(self.low, self.audited, end, self.audited) for p, end in ends.items()}),
            [_records(raw)],
            [_records(self.later)],
            Window("made", {p: Span(self.made_low, 0, end, 0) for p, end in made_ends.items()}),
            [_groups(self.made)],
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
            np.array([self.over[at] * _MINUTE if at in self.over else FOREVER for at in places], np.int64),
            self.lost_letters,
            kept_since_ms,
        )


def found(findings: Sequence[Finding]) -> set[tuple[str, str]]:
    assert len(findings) == len({(each.kind, each.coordinate, each.detail) for each in findings})
    return {(each.kind, each.coordinate) for each in findings}


def _digest(text: str) -> int:
    return zlib.crc32(text.encode()) + 1


def _records(raw: Sequence[Raw]) -> Records:
    count = len(raw)
    sent = [(each.minute if each.sent_minute is None else each.sent_minute) * 60_000 for each in raw]
    return _made_of(
        [each.at for each in raw],
        sent,
        [each.is_readable for each in raw],
        np.zeros(count, np.uint64),
        members={
            "made": Members(
                np.array([_digest(each.origin) if each.is_readable else 0 for each in raw], np.uint64),
                np.array([each.minute * _MINUTE if each.is_readable else NEVER for each in raw], np.int64),
                np.array([each.is_left_out for each in raw], np.bool_),
            )
        },
    )


def _groups(made: Sequence[Made]) -> Records:
    made = sorted(made, key=lambda each: (each.partition, each.offset))
    groups = Groups(
        np.array([_digest(each.origin) for each in made], np.uint64),
        np.array([each.begins * _MINUTE for each in made], np.int64),
        np.array([(each.begins + each.length) * _MINUTE for each in made], np.int64),
        np.array([each.count for each in made], np.int64),
        np.array([each.is_final for each in made], np.bool_),
        np.array([_digest(each.run) for each in made], np.uint64),
        np.array([each.batch for each in made], np.int64),
        np.array([each.id_of in (None, each.text) for each in made], np.bool_),
        np.ones(len(made), np.bool_),
        {_digest(each.text): each.text for each in made},
    )
    key = np.array([_digest(each.text) for each in made], np.uint64)
    at = [code(each.partition, each.offset) for each in made]
    return _made_of(
        at, [10**10 + each.offset for each in made], [each.is_readable for each in made], key, groups=groups
    )


def _made_of(at: Sequence[int], sent_ms: Sequence[int], readable: Sequence[bool], key: Any, **more: Any) -> Records:
    """`payload` is the place, as in the letters."""
    count = len(at)
    numbers: dict[str, Any] = {name: np.zeros(count, np.uint64) for name in ("event", "row")}
    return Records(
        "topic",
        0,
        at=np.array(at, np.int64),
        source=np.array(at, np.int64),
        part=np.full(count, WHOLE),
        parts=np.zeros(count, np.int64),
        sent_ms=np.array(sent_ms, np.int64),
        revision=np.zeros(count, np.int64),
        key=key,
        payload=np.array(at, np.uint64),
        shared={},
        wanted={},
        readable=np.array(readable, np.bool_),
        redriven=np.zeros(count, np.bool_),
        verdict=np.full(count, RIGHT, np.int16),
        **numbers,
        **more,
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


events = st.lists(
    st.tuples(
        st.integers(0, 1),
        st.sampled_from(["EST", "NTH", "STH"]),
        st.integers(0, 600),
        st.sampled_from([0, 0, 60, 61]),
        st.integers(0, 9).map(bool),
        st.integers(0, 9).map(lambda number: not number),
    ),
    max_size=40,
).map(numbered)
sizes = st.lists(st.integers(1, 12), min_size=1, max_size=4)


@given(events, st.integers(0, 60), sizes, st.booleans(), st.integers(0, 30), st.sampled_from([15, 5, 7]))
def test_whatever_the_batches_what_went_right_is_clean(
    raw: list[Raw], cut: int, chosen: list[int], appends: bool, ahead: int, slide: int
) -> None:
    story = a_story(raw, min(cut, len(raw)), chosen, appends=appends, ahead=ahead, slide=slide)
    assert story.found(appends=appends) == set()


@given(events, st.integers(0, 60), sizes, st.integers(0, 20), st.booleans())
def test_an_audit_that_begins_anywhere_is_clean(
    raw: list[Raw], cut: int, chosen: list[int], audited: int, is_deleted: bool
) -> None:
    """What lies before was audited, or deleted by retention."""
    story = a_story(raw, min(cut, len(raw)), chosen)
    before = [each.minute * _MINUTE for each in story.raw if each.offset < audited and each.is_readable]
    story = replace(story, low=audited) if is_deleted else replace(story, audited=audited)
    assert replace(story, known={"newest_before": max(before, default=NEVER)}).found() == set()
    assert story.found() == set()


@given(events, st.integers(1, 12), st.integers(1, 12))
def test_a_rebuild_with_other_batches_is_clean_but_for_what_it_dropped(raw: list[Raw], first: int, second: int) -> None:
    pipeline, dropped = Pipeline(), set()
    for run, size in (("a", first), ("b", second)):
        pipeline.begin(run)
        late, dead = list(pipeline.late), list(pipeline.dead)
        for begin in range(0, len(raw), size):
            pipeline.take(raw[begin : begin + size])
        if run == "b":
            dropped = set(pipeline.late[len(late) :]) - set(late)
            pipeline.late, pipeline.dead = late, dead
    story = Story(tuple(raw), (), tuple(pipeline.made), tuple(pipeline.dead), tuple(pipeline.late))
    assume(any(each.run == "a" for each in story.made))  # or nothing tells that there was a rebuild
    kinds = {kind for kind, _ in story.found()}
    assert kinds <= ({"lost"} if dropped else set())


RAW = [
    Raw(0, 0, "EST", 0),
    Raw(0, 1, "EST", 14),
    Raw(0, 2, "EST", 15),
    Raw(1, 0, "NTH", 3),
    Raw(1, 1, "NTH", 4, is_readable=False),
    Raw(0, 3, "STH", 200),
    Raw(0, 4, "EST", 2),
    Raw(1, 2, "NTH", 202),
]
GOOD = a_story(RAW, len(RAW), [6])
"""Of partition 0 offset 4 is late, of partition 1 offset 1 is bad."""


def changed(index: int, **fields: Any) -> tuple[Made, ...]:
    return (*GOOD.made[:index], replace(GOOD.made[index], **fields), *GOOD.made[index + 1 :])


def also(index: int, **fields: Any) -> tuple[Made, ...]:
    """One more record of a key, behind all others of its partition."""
    one = GOOD.made[index]
    offset = max(each.offset for each in GOOD.made if each.partition == fields.get("partition", one.partition)) + 1
    return (*GOOD.made, replace(one, **({"offset": offset, "batch": one.batch + 5} | fields)))


def named(index: int) -> str:
    return f"made/{GOOD.made[index].partition}/{GOOD.made[index].offset}"


def last(made: Sequence[Made]) -> str:
    return f"made/{made[-1].partition}/{made[-1].offset}"


def test_the_story_has_what_the_faults_need() -> None:
    assert [(each.origin, each.begins, each.count, each.batch) for each in GOOD.made] == [
        ("EST", 0, 2, 0), ("EST", 15, 1, 0), ("NTH", 0, 1, 0), ("STH", 195, 1, 0), ("NTH", 195, 1, 1),
    ]  # fmt: skip
    assert (GOOD.dead, GOOD.late) == ((code(1, 1),), (code(0, 4),))
    assert GOOD.found() == set()
    notes = [tally.notes for tally in GOOD.aggregation().tallies.values()]
    assert sum(map(bool, notes)) == 0, "they are full when the findings are"


MORE = also(0)
FAULTS: list[tuple[str, Story, set[tuple[str, str]]]] = [
    ("a record is lost", replace(GOOD, made=changed(0, count=1)), {("lost", named(0))}),
    ("a record is doubled", replace(GOOD, made=changed(0, count=3)), {("doubled", named(0))}),
    ("a group is missing", replace(GOOD, made=GOOD.made[1:]), {("lost", "raw/0/0")}),
    ("all groups are missing", replace(GOOD, made=()), {("lost", f"raw/{at}") for at in ("0/0", "1/0", "0/3")}),
    ("a group is made up", replace(GOOD, made=also(0, origin="ORD", batch=0)), {("phantom", last(MORE))}),
    ("a window has another length", replace(GOOD, made=changed(0, length=14)), {("lost", "raw/0/1"), ("doubled", named(0))}),
    ("a late record never was", replace(GOOD, late=(*GOOD.late, code(0, 77))), {("phantom", "raw/0/77")}),
    ("a late record is of no topic of ours", replace(GOOD, late=(*GOOD.late, -1)), {("phantom", "made.late/0/1")}),
    ("a late record came twice", replace(GOOD, late=GOOD.late * 2), {("doubled", "raw/0/4")}),
    ("a late record was counted", replace(GOOD, made=changed(0, count=3)), {("doubled", named(0))}),
    (
        "a record that was counted came late, too",
        replace(GOOD, late=(*GOOD.late, code(0, 1))),
        {("doubled", named(0))},
    ),
    ("the only record of a group is late, too", replace(GOOD, late=(*GOOD.late, code(1, 0))), {("phantom", named(2))}),
    (
        "one is late whose window can't be over",
        replace(GOOD, late=(*GOOD.late, code(0, 3)), made=tuple(each for each in GOOD.made if each.origin != "STH")),
        {("set aside", "raw/0/3")},
    ),
    ("a late record is gone", replace(GOOD, late=()), {("lost", named(0))}),
    ("a late record is bad", replace(GOOD, late=(*GOOD.late, code(1, 1)), dead=()), {("phantom", "raw/1/1")}),
    ("a late record is a dead letter", replace(GOOD, late=(*GOOD.late, code(1, 1))), {("doubled", "raw/1/1")}),
    ("a dead letter is gone", replace(GOOD, dead=()), {("lost", "raw/1/1")}),
    ("a dead letter came twice", replace(GOOD, dead=GOOD.dead * 2), {("doubled", "raw/1/1")}),
    (
        "a good record is a dead letter",
        replace(GOOD, dead=(*GOOD.dead, code(1, 0)), made=tuple(each for each in GOOD.made if each != GOOD.made[2])),
        {("set aside", "raw/1/0")},
    ),
    (
        "a record from the future is no dead letter",
        replace(GOOD, raw=(*GOOD.raw, Raw(1, 3, "NTH", 300, sent_minute=239))),
        {("lost", "raw/1/3")},
    ),
    (
        "a record from the future is counted",
        replace(GOOD, raw=(*GOOD.raw, Raw(1, 3, "NTH", 204, sent_minute=143)), made=changed(4, count=2), dead=(*GOOD.dead, code(1, 3))),
        {("doubled", named(4))},
    ),
    ("an id came twice", replace(GOOD, made=also(0, batch=0)), {("doubled", last(MORE))}),
    (
        "a batch lies behind a later one",
        replace(GOOD, made=(*changed(0, batch=4), replace(MORE[-1], batch=2))),
        {("out of order", last(MORE))},
    ),
    (
        "a run lies behind a later one",
        replace(GOOD, made=(*changed(0), replace(MORE[-1], run="b"), replace(MORE[-1], offset=MORE[-1].offset + 1))),
        {("out of order", f"made/{MORE[-1].partition}/{MORE[-1].offset + 1}")},
    ),
    ("an id is of another key", replace(GOOD, made=changed(0, id_of="NTH/0")), {("changed", named(0))}),
    ("an id names no batch", replace(GOOD, made=changed(0, batch=NO_BATCH)), {("changed", named(0))}),
    ("a group says that it is final", replace(GOOD, made=changed(0, is_final=True)), {("changed", named(0))}),
    ("a group has two keys", replace(GOOD, made=also(0, key="EST", batch=0)), {("doubled", last(MORE))}),
    (
        "a key is in two partitions",
        replace(GOOD, made=also(0, partition=1 - GOOD.made[0].partition)),
        {("out of order", last(also(0, partition=1 - GOOD.made[0].partition)))},
    ),
    ("a window ends before it begins", replace(GOOD, made=changed(1, length=0)), {("phantom", named(1)), ("lost", "raw/0/2")}),
    ("a group can't be decoded", replace(GOOD, made=changed(1, is_readable=False)), {("phantom", named(1)), ("lost", "raw/0/2")}),
]  # fmt: skip


@pytest.mark.parametrize(("story", "expected"), [each[1:] for each in FAULTS], ids=[each[0] for each in FAULTS])
def test_a_planted_fault_is_found(story: Story, expected: set[tuple[str, str]]) -> None:
    assert story.found() == expected


def test_where_windows_overlap_a_late_record_counts_in_those_that_are_not_over() -> None:
    raw = numbered([(0, "EST", minute, 0, True, False) for minute in (0, 12, 135, 8)])
    story = a_story(raw, len(raw), [1], slide=5)
    # The watermark was at 15: of the windows with minute 8 those from -5 and 0 on are over, that from 5 on is not.
    assert (story.late, story.over) == ((code(0, 3),), {code(0, 3): 15})
    assert story.found() == set()
    (index,) = (at for at, each in enumerate(story.made) if (each.begins, each.batch) == (5, 3))
    made = story.made
    at = f"made/{made[index].partition}/{made[index].offset}"
    for count, kind in ((1, "lost"), (3, "doubled")):
        wrong = (*made[:index], replace(made[index], count=count), *made[index + 1 :])
        assert replace(story, made=wrong).found() == {(kind, at)}
    assert replace(story, made=tuple(each for each in made if each.begins != 10)).found() == {("lost", "raw/0/1")}
    assert replace(story, over={code(0, 3): 20}).found() == {("doubled", at), ("set aside", "raw/0/3")}


def test_a_late_record_tells_which_windows_are_over() -> None:
    told = "its windows that end from 1970-01-01T00:00:05Z to 1970-01-01T00:01:00Z are over: the watermark was later"
    assert (_over(told), _over("late"), _over(told.replace("01:00", "99:00"))) == (60_000_000, FOREVER, FOREVER)


def test_a_letter_of_other_bytes_is_found() -> None:
    aggregation = GOOD.aggregation()
    aggregation._late.payload[:] = 7
    assert found(list(aggregation.findings())) == {("changed", "raw/0/4")}


def test_groups_ahead_of_the_cut_are_compared_within_bounds() -> None:
    whole = a_story(RAW[:6], 1, [6])
    assert whole.found() == set()
    aggregation = whole.aggregation()
    list(aggregation.findings())
    notes = {text: sum(tally.notes[text] for tally in aggregation.tallies.values()) for text in _NOTES}
    # Of EST from 0 on one record lies before the cut; all others have none there.
    assert notes == {_NOTES[0]: 0, _NOTES[1]: 4}
    made = whole.made
    assert replace(whole, made=(replace(made[0], count=3), *made[1:])).found() == {("doubled", named(0))}
    assert replace(whole, made=(replace(made[0], count=0), *made[1:])).found() == {("lost", named(0))}


_NOTES = (
    "groups counted again",
    "groups counted again within bounds, for records came meanwhile or may have been set aside",
)


def test_of_groups_with_records_of_before_only_losses_are_found() -> None:
    story = replace(GOOD, audited=1, known={"newest_before": 3 * _MINUTE})
    assert story.found() == set()
    assert replace(story, made=changed(0, count=9)).found() == set()
    assert replace(story, made=changed(0, count=0)).found() == {("lost", named(0))}
    assert replace(story, made=changed(3, count=9)).found() == {("doubled", named(3))}
    assert story.aggregation().newest == 202 * _MINUTE
    assert replace(story, known={}).aggregation().newest is None


def test_what_was_sent_after_the_deleted_records_is_counted_exactly() -> None:
    story = replace(GOOD, low=1)
    # What is left of partition 0 was sent from minute 14 on.
    assert story.found() == set()
    assert replace(story, made=changed(1, count=9)).found() == set(), "an event may be an hour ahead"
    assert replace(story, made=changed(3, count=9)).found() == {("doubled", named(3))}
    kept = {"raw_kept_since_ms": 201 * 60_000}
    assert replace(story, known=kept, made=changed(3, count=9)).found() == set(), "what is sent may be in any order"


def test_groups_and_letters_that_expired_are_no_losses() -> None:
    long_ago = {"kept_since_ms": 100 * 60_000, "letters_since_ms": 100 * 60_000}
    no_ewr = replace(GOOD, made=tuple(each for each in GOOD.made if each.origin != "EST"), known=long_ago)
    assert no_ewr.found() == {("lost", "raw/0/0"), ("lost", "raw/0/2")}, "no partition has deleted any"
    assert replace(no_ewr, made_low=1).found() == set()
    assert replace(no_ewr, made_low=1, known={"kept_since_ms": -(10**6)}).found() == no_ewr.found()
    no_letters = replace(GOOD, late=(), dead=(), known=long_ago)
    assert no_letters.found() == {("lost", named(0)), ("lost", "raw/1/1")}
    assert replace(no_letters, lost_letters=True).found() == set()


def test_purged_and_redriven_letters_are_accounted_for() -> None:
    both = np.array([code(1, 0), code(1, 1)])
    assert replace(GOOD, dead=(), known={"purged": both}).found() == set()
    no_jfk = tuple(each for each in GOOD.made if each != GOOD.made[2])
    assert replace(GOOD, made=no_jfk, dead=(), known={"purged": both}).found() == set()
    sent_back = replace(GOOD, made=no_jfk, dead=(*GOOD.dead, code(1, 0)), known={"redriven": both})
    assert sent_back.found() == set()


def test_a_record_from_the_future_is_a_dead_letter_by_rights() -> None:
    future = Raw(1, 3, "NTH", 10_000, sent_minute=200)
    story = replace(GOOD, raw=(*GOOD.raw, future), dead=(*GOOD.dead, future.at))
    assert story.found() == set()
    assert story.aggregation().newest == 202 * _MINUTE, "or no group would be compared by the next audit"


def test_what_a_rebuild_sets_aside_again_is_no_fault() -> None:
    """Where the positions were lost with the state."""
    again = tuple(replace(each, run="b", offset=each.offset + 10) for each in GOOD.made)
    story = replace(GOOD, made=(*GOOD.made, *again), late=GOOD.late * 2, dead=GOOD.dead * 2)
    aggregation = story.aggregation()
    assert found(list(aggregation.findings())) == set()
    assert sum(tally.notes["set aside again, by a rebuild"] for tally in aggregation.tallies.values()) == 2


def test_of_groups_that_are_written_when_they_are_over_the_open_ones_are_not_missed() -> None:
    raw = numbered([(0, "EST", minute, 0, True, False) for minute in (0, 20, 160, 170, 300, 310, 450)])
    story = a_story(raw, len(raw), [1], appends=True)
    assert [each.begins for each in story.made] == [0, 15, 150, 165, 300]
    assert story.found(appends=True) == set()
    assert [each.batch for each in story.made] == [2, 2, 4, 4, 6]
    without = replace(story, made=(story.made[0], *story.made[2:]))
    assert without.found(appends=True) == {("lost", "raw/0/1")}
    assert replace(story, made=story.made[:-1]).found(appends=True) == set(), "nothing says that it is over"


def test_rows_of_records_that_compaction_removed_are_no_phantoms() -> None:
    """In the lake table of an aggregate, all records of a group stay."""
    window, kept = Window("made", {0: Span(0, 0, 3, 0)}), _groups([replace(GOOD.made[0], partition=0, offset=2)])
    at, nothing = np.array([0, 1, 2, 7]), np.zeros(4, np.uint64)
    rows = Rows(at, at, np.full(4, WHOLE), np.zeros(4, np.int64), nothing)
    none = np.zeros(0, np.int64)
    for is_compacted, phantoms in ((True, {"made/0/7"}), (False, {"made/0/0", "made/0/1", "made/0/7"})):
        landing = Landing(
            window, "made", "table", [kept], [rows], {0: 3}, own_coordinate=False, is_compacted=is_compacted
        )
        findings = list(landing.findings(none, none, none, np.zeros(1, np.bool_)))
        assert found(findings) == {("phantom", each) for each in phantoms}
        assert landing.tallies[0].notes["of records that compaction may have removed, not compared"] == 2 * is_compacted


def test_the_file_tells_of_every_aggregate_what_its_pipeline_does() -> None:
    catalog = sample.catalog()
    pipelines = {each.target: each for each in map(load, pipeline_files(sample.PIPELINES))}
    found = load_aggregates(sample.AGGREGATES, catalog)
    assert found.keys() == {topic.name for topic in catalog.topics.values() if topic.is_aggregate}
    assert {name: each.output for name, each in found.items()} == {name: pipelines[name].output for name in found}


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        (
            {"topic": "parcels.dispatched.v1"},
            "parcels.dispatched.v1 is no aggregate: its contract does not say that a record",
        ),
        ({"topic": "nothing.known.v1"}, "no contract for topic 'nothing.known.v1'"),
        ({"of": "due_at"}, "of: due_at is not dispatched_at, the time of the events by"),
        ({"begins": "origin"}, "origin of parcels.dispatched.delays.v1 must be an instant, not string"),
        ({"ends": "gone"}, "gone of parcels.dispatched.delays.v1 must be an instant, not none"),
        (
            {"by": "[courier]"},
            "by courier: parcels.dispatched.v1 and parcels.dispatched.delays.v1 must both have it, of one type",
        ),
        ({"by": "origin"}, "by: Input should be a valid tuple"),
        ({"counts": "origin"}, "counts: origin of parcels.dispatched.delays.v1 must be an int or a long, not string"),
        ({"where": "origin =="}, "where: origin ==: "),
        ({"where": "gate > 1"}, "where: parcels.dispatched.v1 has no field gate"),
        ({"outputs": "append"}, "outputs: Extra inputs are not permitted"),
    ],
)
def test_a_wrong_aggregates_file_is_refused_with_its_name(
    changes: dict[str, str], problem: str, tmp_path: Path
) -> None:
    said = {"topic": "parcels.dispatched.delays.v1", "of": "dispatched_at", "begins": "begins_at", "ends": "ends_at"}
    said |= {"by": "[origin]", "counts": "dispatches"} | changes
    topic, *bounds = (said.pop(name) for name in ("topic", "of", "begins", "ends"))
    window = "  window: {{of: {}, begins: {}, ends: {}}}\n".format(*bounds)
    path = tmp_path / "aggregates.yaml"
    path.write_text(f"{topic}:\n{window}" + "".join(f"  {name}: {text}\n" for name, text in said.items()))
    with pytest.raises(CouldNotAudit) as raised:
        load_aggregates(path, sample.catalog())
    assert str(raised.value).startswith(f"{path}: ")
    assert problem in str(raised.value)


def test_records_are_told_by_their_columns() -> None:
    told = Aggregate.model_validate(
        {"window": {"of": "at", "begins": "begins", "ends": "ends"}, "by": ["origin"], "counts": "count"}
    )
    instants = pa.timestamp("ms", "UTC")
    columns = {
        "at": pa.array([1, 2, None], instants),
        "origin": pa.array(["a", None, "a"]),
        "delay": pa.array([5, 70, 5]),
    }
    good = np.array([True, False, True, True])
    members = Members.of_rows(told, Condition("delay > 9"), columns, good)
    assert members.of.tolist() == [1000, NEVER, 2000, NEVER]
    assert members.belong.tolist() == [False, False, True, False]
    assert members.by[0] == members.by[3] != members.by[2]
    assert Members.of_rows(told, None, columns, good).belong.tolist() == [True, False, True, False]
    groups = Groups.of_rows(
        told,
        "id",
        [b"a/1", b"a/1", b"b", None],
        [b"a/1/run/0", b"a/1/run/x", b"c/run/12", None],
        {
            "id": pa.array(["a/1", "a/2", "b"]),
            "begins": pa.array([1, 2, None], instants),
            "ends": pa.array([1_000, 2_000, 3_000], pa.timestamp("us", "UTC")),
            "origin": columns["origin"],
            "count": pa.array([3, None, 1], pa.int64()),
        },
        np.array([True, True, True, False]),
    )
    assert groups.by[:3].tolist() == [members.by[0], members.by[2], members.by[0]]
    assert groups.begins.tolist() == [1000, 2000, NEVER, NEVER]
    assert groups.ends.tolist() == [1000, 2000, 3000, NEVER]
    assert groups.count.tolist() == [3, 0, 1, 0]
    assert groups.batch.tolist() == [0, NO_BATCH, 12, NO_BATCH]
    assert groups.has_own_id[[0, 2]].tolist() == [True, False]
    assert groups.has_own_key.tolist() == [True, False, True, True]
    assert groups.keys[int(digests(pa.array([b"a/1"]))[0])] == "a/1"


counted = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 20)), max_size=30)
windows = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 20), st.integers(1, 9)), max_size=12)


@given(counted, windows)
def test_counting_all_at_once_is_counting_one_by_one(
    events: list[tuple[int, int]], groups: list[tuple[int, int, int]]
) -> None:
    by, of = np.array([each[0] for each in events], np.uint64), np.array([each[1] for each in events], np.int64)
    group_by = np.array([each[0] for each in groups], np.uint64)
    begins = np.array([each[1] for each in groups], np.int64)
    ends = np.array([each[1] + each[2] for each in groups], np.int64)
    belongs = [[who == g and b <= when < b + n for g, b, n in groups] for who, when in events]
    assert covered(by, of, group_by, begins, ends).tolist() == [any(each) for each in belongs]
    assert (
        inside(by, of, group_by, begins, ends).tolist() == [sum(each) for each in zip(*belongs, strict=True)]
        or not events
    )

"""Sessions counted again: what went right is clean, and every planted fault is found."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from services.audit.aggregates.aggregation import Aggregation
from services.audit.aggregates.letters import FOREVER, Known, Letters
from services.audit.records.groups import NEVER
from services.audit.records.window import Span, Window
from services.audit.values.place import code
from tests.audit.aggregates.story import LATE_AFTER, MINUTE, Made, Raw, found, groups_of, records_of

_GAP = {"EST": 30, "NTH": 30, "STH": 60}
"""Minutes, by origin, which sessions are grouped by, too."""
_LONGEST_GAP = 200
"""That an event has by itself."""


def _end(raw: Raw) -> int:
    return raw.minute + (_GAP[raw.origin] if raw.gap is None else raw.gap)


@dataclass(frozen=True)
class Rounds:
    """What lies on the topics: `raw` up to the cut and `later`, sessions, and places of raw records that are late."""

    raw: tuple[Raw, ...] = ()
    later: tuple[Raw, ...] = ()
    made: tuple[Made, ...] = ()
    late: tuple[int, ...] = ()
    audited: int = 0
    newest_before: int | None = None

    def found(self) -> set[tuple[str, str]]:
        raw = [each for each in sorted(self.raw, key=lambda each: each.at) if each.offset >= self.audited]
        ends = {p: max([self.audited, *(r.offset + 1 for r in self.raw if r.partition == p)]) for p in (0, 1)}
        latest = {p: max([ends[p], *(r.offset + 1 for r in self.later if r.partition == p)]) for p in (0, 1)}
        nothing = np.zeros(0, np.int64)
        late = np.array(self.late, np.int64)
        aggregation = Aggregation(
            Window("raw", {p: Span(0, self.audited, end, self.audited) for p, end in ends.items()}),
            [self._records(raw)],
            [self._records(self.later)],
            Window("made", {0: Span(0, 0, len(self.made), 0)}),
            [groups_of(self.made)],
            Letters("raw.dlq", nothing, nothing, nothing.astype(np.uint64), nothing),
            Letters("made.late", np.arange(len(late)), late, late.astype(np.uint64), np.full(len(late), FOREVER)),
            Known(latest, LATE_AFTER, newest_before=self.newest_before),
            appends=True,
            longest_gap=_LONGEST_GAP,
        )
        return found(list(aggregation.findings()))

    def _records(self, raw: Sequence[Raw]) -> Any:
        records = records_of(raw)
        until = np.array([_end(each) * MINUTE if each.is_readable else NEVER for each in raw], np.int64)
        return replace(records, members={"made": replace(records.members["made"], until=until)})


class Pipeline:
    """Rounds in batches, as the real one makes them."""

    def __init__(self) -> None:
        self.made: list[Made] = []
        self.late: list[int] = []
        self.begin("a")

    def begin(self, run: str) -> None:
        """With another run the state is empty."""
        self._run, self._batch = run, 0
        self._watermark = self._newest = NEVER
        self._open: dict[str, list[tuple[int, int, int]]] = defaultdict(list)

    def take(self, batch: Sequence[Raw]) -> None:
        """One batch, with a watermark behind it."""
        for each in batch:
            self._newest = max(self._newest, each.minute)
            if _end(each) <= self._watermark:
                self.late.append(each.at)
            else:
                self._open[each.origin].append((each.minute, _end(each), 1))
        self._watermark = max(self._watermark, self._newest - LATE_AFTER)
        for origin, sessions in sorted(self._open.items()):
            merged: list[tuple[int, int, int]] = []
            for begins, ends, count in sorted(sessions):
                if merged and begins <= merged[-1][1]:
                    merged[-1] = (merged[-1][0], max(ends, merged[-1][1]), merged[-1][2] + count)
                else:
                    merged.append((begins, ends, count))
            self._open[origin] = [each for each in merged if each[1] > self._watermark]
            for begins, ends, count in merged:
                if ends <= self._watermark:
                    self.made.append(
                        Made(
                            0,
                            len(self.made),
                            origin,
                            begins,
                            count,
                            self._run,
                            self._batch,
                            key=f"{origin}/{ends}",
                            is_final=True,
                            length=ends - begins,
                        )
                    )
        self._batch += 1


def rounds(raw: Sequence[Raw], cut: int, sizes: Sequence[int]) -> Rounds:
    """What comes of raw records in batches of these sizes, again and again; the cut lies behind so many."""
    pipeline, begin, number = Pipeline(), 0, 0
    while begin < len(raw):
        size = sizes[number % len(sizes)]
        pipeline.take(raw[begin : begin + size])
        begin, number = begin + size, number + 1
    return Rounds(tuple(raw[:cut]), tuple(raw[cut:]), tuple(pipeline.made), tuple(pipeline.late))


def numbered(events: Sequence[tuple[int, str, int, int | None]]) -> list[Raw]:
    """Partition, origin, minute, gap; with the offsets that they get."""
    ends, made = {0: 0, 1: 0}, []
    for partition, origin, minute, gap in events:
        made.append(Raw(partition, ends[partition], origin, minute, gap=gap))
        ends[partition] += 1
    return made


events = st.lists(
    st.tuples(
        st.integers(0, 1),
        st.sampled_from(["EST", "NTH", "STH"]),
        st.integers(0, 600),
        st.sampled_from([None, None, 5, _LONGEST_GAP]),
    ),
    max_size=40,
).map(numbered)
sizes = st.lists(st.integers(1, 12), min_size=1, max_size=4)


@given(events, st.integers(0, 60), sizes)
def test_whatever_the_batches_what_went_right_is_clean(raw: list[Raw], cut: int, chosen: list[int]) -> None:
    assert rounds(raw, min(cut, len(raw)), chosen).found() == set()


TWO_BESIDE_ANOTHER = numbered([(0, "EST", minute, None) for minute in (0, 31, 62, 212, 320)] + [(0, "EST", 0, 200)])
"""The last one's session touches those from 31 and 62 minutes on, which were written together and don't touch each other."""


def of_nth_among_others(*nth: tuple[int, int], others: Sequence[tuple[str, int, int]]) -> list[Raw]:
    """Each a minute and a gap."""
    return numbered([*[(0, "NTH", *each) for each in nth], *[(0, *each) for each in others]])


HELD_OPEN = of_nth_among_others(
    (100, 200), (110, 30), others=[("EST", 120, 30), ("STH", 130, 35), ("EST", 275, 30), ("EST", 290, 30)]
)
"""The first one holds the session of the second open until minute 300, and an audit may have read the second only."""
HELD_OPEN_FROM_BEHIND = of_nth_among_others(
    (100, 100), (85, 100), others=[("EST", 120, 66), ("STH", 125, 67), ("EST", 310, 30), ("EST", 316, 30)]
)
"""The same, and the second one's time is the earlier one."""
HELD_TOGETHER = of_nth_among_others(
    (100, 200), (110, 5), (295, 200), others=[("EST", 120, 185), ("STH", 125, 200), ("EST", 430, 30), ("EST", 446, 30)]
)
"""The first one holds the other two together, until minute 495."""


@example(HELD_TOGETHER, [1], 1)
@example(HELD_OPEN_FROM_BEHIND, [1], 1)
@example(HELD_OPEN, [1], 1)
@example(TWO_BESIDE_ANOTHER, [4], 0)
@given(events, sizes, st.integers(0, 20))
def test_an_audit_that_begins_anywhere_is_clean(raw: list[Raw], chosen: list[int], audited: int) -> None:
    made = rounds(raw, len(raw), chosen)
    before = max((each.minute * MINUTE for each in raw if each.offset < audited), default=NEVER)
    assert replace(made, audited=audited, newest_before=before).found() == set()
    assert replace(made, audited=audited).found() == set()


@given(events, st.integers(1, 12))
def test_after_a_rebuild_at_once_what_went_right_is_clean(raw: list[Raw], size: int) -> None:
    pipeline = Pipeline()
    for begin in range(0, len(raw), size):
        pipeline.take(raw[begin : begin + size])
    late = tuple(pipeline.late)
    pipeline.begin("b")
    pipeline.take(raw)
    assume(any(each.run == "a" for each in pipeline.made))  # or nothing tells that there was a rebuild
    assert Rounds(tuple(raw), (), tuple(pipeline.made), late).found() == set()


RAW = numbered(
    [
        *[(0, "EST", minute, None) for minute in (0, 20, 50, 100)],
        *[(1, "STH", minute, None) for minute in (0, 60)],
        (1, "NTH", 10, None),
        (0, "NTH", 300, None),
        (0, "EST", 40, None),
        (0, "EST", 65, 200),
        (1, "NTH", 700, None),
    ]
)
GOOD = rounds(RAW, len(RAW), [8, 1])
"""EST: a round from 0 to 80 and one from 100 to 130, and from 65 to 265 one that came when they were written; STH: one of two."""


def changed(index: int, **fields: Any) -> tuple[Made, ...]:
    return (*GOOD.made[:index], replace(GOOD.made[index], **fields), *GOOD.made[index + 1 :])


def named(index: int) -> str:
    return f"made/0/{GOOD.made[index].offset}"


def test_the_story_has_what_the_faults_need() -> None:
    assert [(each.origin, each.begins, each.length, each.count, each.batch) for each in GOOD.made] == [
        ("EST", 0, 80, 3, 0), ("EST", 100, 30, 1, 0), ("NTH", 10, 30, 1, 0), ("STH", 0, 120, 2, 0),
        ("EST", 65, 200, 1, 2), ("NTH", 300, 30, 1, 2),
    ]  # fmt: skip
    assert GOOD.late == (RAW[8].at,)
    assert GOOD.found() == set()


FAULTS: list[tuple[str, Rounds, set[tuple[str, str]]]] = [
    ("a record is lost", replace(GOOD, made=changed(3, count=1)), {("lost", named(3))}),
    ("a record is doubled", replace(GOOD, made=changed(3, count=3)), {("doubled", named(3))}),
    ("a session is missing", replace(GOOD, made=(*GOOD.made[:3], *GOOD.made[4:])), {("lost", "raw/1/0")}),
    ("a session begins too early", replace(GOOD, made=changed(3, begins=-1, length=121)), {("changed", named(3))}),
    ("a session ends too late", replace(GOOD, made=changed(3, length=121)), {("changed", named(3))}),
    ("a session ends too early", replace(GOOD, made=changed(3, length=119)), {("doubled", named(3)), ("lost", "raw/1/1")}),
    (
        "two sessions are one",
        replace(GOOD, made=(*changed(2, length=320, count=2)[:5],)),
        {("changed", named(2))},
    ),
    (
        "one session is two",
        replace(
            GOOD,
            made=(*changed(3, length=60, count=1), replace(GOOD.made[3], begins=60, length=60, count=1, offset=6, key="x")),
        ),
        {("changed", "made/0/6")},
    ),
    ("a session is made up", replace(GOOD, made=changed(2, origin="ORD")), {("phantom", named(2)), ("lost", "raw/1/2")}),
    ("a late record is gone", replace(GOOD, late=()), {("lost", named(0))}),
    ("a late record was counted", replace(GOOD, made=changed(0, count=4)), {("doubled", named(0))}),
    (
        "one is late whose session can't be over",
        replace(GOOD, late=(*GOOD.late, RAW[10].at)),
        {("set aside", "raw/1/3")},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("story", "expected"), [each[1:] for each in FAULTS], ids=[each[0] for each in FAULTS])
def test_a_planted_fault_is_found(story: Rounds, expected: set[tuple[str, str]]) -> None:
    assert story.found() == expected


def test_a_session_ahead_of_the_cut_is_compared_within_bounds() -> None:
    whole = replace(GOOD, raw=tuple(RAW[:5]), later=tuple(RAW[5:]), late=GOOD.late)
    assert whole.found() == set()
    made = whole.made
    assert replace(whole, made=(*made[:3], replace(made[3], count=3), *made[4:])).found() == {("doubled", named(3))}
    assert replace(whole, made=(*made[:3], replace(made[3], count=0), *made[4:])).found() == {("lost", named(3))}


def test_one_that_may_be_open_is_not_missed() -> None:
    assert code(1, 3) == RAW[10].at
    assert replace(GOOD, made=GOOD.made[:5]).found() == set(), "nothing says that the last one of NTH is over"


def test_a_session_that_nothing_unread_can_hold_open_any_more_is_missed() -> None:
    others = [("EST", 120, 30), ("EST", 700, 30), ("EST", 900, 30), ("EST", 1100, 30)]
    raw = of_nth_among_others((100, 5), (301, 30), others=others)
    made = rounds(raw, len(raw), [1])
    missing = tuple(each for each in made.made if (each.origin, each.begins) != ("NTH", 301))
    assert len(missing) == len(made.made) - 1
    assert replace(made, made=missing, audited=1, newest_before=100 * MINUTE).found() == {("lost", "raw/0/1")}

"""What is found in a join, and that nothing is found where nothing is wrong."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.audit.joins.oracle import faults
from tests.audit.joins.story import LATE_AFTER, MINUTE, Letter, Made, Place, Raw, Story, a_story, numbered

_EVENTS = st.lists(
    st.tuples(
        st.sampled_from([0, 1]),
        st.sampled_from([0, 1]),
        st.sampled_from(["a", "b", "c", ""]),
        st.integers(0, 400),
        st.sampled_from([0, 0, 0, 5, 40]),
        st.sampled_from([True, True, True, True, False]),
        st.sampled_from([False, False, False, True]),
    ),
    max_size=40,
)
_GOING_ON = st.lists(
    st.tuples(
        st.sampled_from([0, 1]),
        st.sampled_from([0, 0, 1]),
        st.sampled_from(["a", "b"]),
        st.integers(0, 100),
        st.just(0),
        st.sampled_from([True, True, True, True, True, False]),
        st.sampled_from([False, False, False, False, True]),
    ),
    min_size=10,
    max_size=40,
).map(lambda events: [(*each[:3], each[3] + 15 * number, *each[4:]) for number, each in enumerate(events)])
"""Later ones are of later times, so that what came first is over at some time."""
_HOW = st.sampled_from(["left_outer", "inner"])
_SIZES = st.lists(st.integers(1, 9), min_size=1, max_size=4)


def _moving(minutes: int) -> list[Raw]:
    """Each half of an hour a key of its own on either topic; every third has nothing on the second."""
    events = []
    for number in range(minutes // 30):
        at = number * 30
        events.append((0, number % 2, f"k{number}", at, 0, True, False))
        if number % 3:
            events.append((1, number % 2, f"k{number}", at + 7, 0, True, False))
        else:
            events.append((1, number % 2, f"x{number}", at + 7, 0, True, False))
    return numbered(events)


RAW = _moving(600)
CLEAN = a_story(RAW, len(RAW), [3])
PAIR = next(each for each in CLEAN.made if each.second is not None)
OTHER = next(each for each in CLEAN.made if each.second is not None and each.key != PAIR.key)
ALONE = next(each for each in CLEAN.made if each.second is None)


def test_the_story_has_pairs_and_records_without_one_and_is_clean() -> None:
    assert CLEAN.found() == set() == faults(CLEAN)
    alone = sum(each.second is None for each in CLEAN.made)
    assert alone >= 3
    assert len(CLEAN.made) - alone >= 8
    assert CLEAN.noted("without a pair as yet, for one may still come") >= 1


@given(_EVENTS, st.integers(0, 40), _SIZES, _HOW, st.sampled_from([0, 3, 10**6]), st.frozensets(st.integers(1, 12)))
def test_whatever_comes_and_however_it_is_cut_what_the_pipeline_makes_is_clean(
    events: list[tuple[int, int, str, int, int, bool, bool]],
    cut: int,
    sizes: list[int],
    how: str,
    ahead: int,
    restarts: frozenset[int],
) -> None:
    raw = numbered(events)
    story = a_story(raw, min(cut, len(raw)), sizes, how=how, ahead=ahead, restarts=restarts)
    assert story.found() == set()


@given(_EVENTS, _SIZES, st.lists(st.integers(1, 9), min_size=1, max_size=3), _HOW, st.integers(1, 40))
def test_a_rebuild_that_batches_otherwise_is_clean(
    events: list[tuple[int, int, str, int, int, bool, bool]], sizes: list[int], more: list[int], how: str, at: int
) -> None:
    # Only by its records is an earlier run known, so it has a pair at once.
    raw = numbered([(0, 0, "z", 0, 0, True, False), (1, 0, "z", 0, 0, True, False), *events])
    story = a_story(raw, len(raw), [*sizes, *more], how=how, rebuilt_at=min(at + 2, len(raw)))
    assert any(each.sent_ms < story.begun_ms for each in story.made)
    assert story.found() == set()


@settings(max_examples=2 * settings().max_examples)
@given(
    _GOING_ON,
    st.integers(5, 40),
    st.integers(5, 40),
    _SIZES,
    _HOW,
    st.sampled_from([0, 3]),
    st.frozensets(st.integers(1, 12)),
)
def test_an_audit_that_begins_where_the_last_one_ended_is_clean(
    events: list[tuple[int, int, str, int, int, bool, bool]],
    first: int,
    then: int,
    sizes: list[int],
    how: str,
    ahead: int,
    restarts: frozenset[int],
) -> None:
    assert _in_two(events, first, then, sizes, how=how, ahead=ahead, restarts=restarts).found() == set()


@given(_GOING_ON, st.integers(1, 40), _SIZES, _HOW, st.sampled_from([3, 10**6]), st.integers(0, 60))
def test_a_pair_that_is_lost_is_found_by_the_audit_before_or_behind_its_second_record(
    events: list[tuple[int, int, str, int, int, bool, bool]],
    first: int,
    sizes: list[int],
    how: str,
    ahead: int,
    number: int,
) -> None:
    story = _in_two(events, first, len(events), sizes, how=how, ahead=ahead)
    pairs = [each for each in story.made if each.second is not None]
    assume(pairs)
    assert story.before is not None
    lost = pairs[number % len(pairs)]
    before = story.before.without(lost)
    assert before.found() | dataclasses.replace(story.without(lost), before=before).found()


@pytest.mark.parametrize("topic", [0, 1])
def test_a_pair_is_found_lost_though_its_second_record_came_while_the_audit_before_looked(topic: int) -> None:
    pair = [(topic, 0, "a", 0, 0, True, False), (1 - topic, 0, "a", 0, 0, True, False)]
    beyond = [(each, 0, f"{each}", 500, 0, True, False) for each in (0, 1, 0, 1)]
    story = _in_two([*pair, *beyond], 1, 6, [2], how="inner", ahead=5)
    assert story.before is not None
    assert (story.before.watermark, story.found()) == (500 - LATE_AFTER, set())
    (lost,) = (each for each in story.made if each.says_first.endswith("/a"))
    before = story.before.without(lost)
    assert before.found() == set(), "its second record came after the cut"
    assert dataclasses.replace(story.without(lost), before=before).found() == {("lost", "left/0/0")}


_PLACES = st.tuples(st.sampled_from([0, 0, 1, -1]), st.integers(0, 6))
_MADE = st.lists(
    st.tuples(
        st.sampled_from([0, 0, 0, 1]),
        _PLACES,
        st.one_of(st.none(), _PLACES),
        st.sampled_from([True, True, True, False]),
        st.sampled_from(["a", "b"]),
        st.sampled_from([True, True, True, False]),
    ),
    max_size=12,
)
_LETTERS = st.lists(
    st.builds(Letter, st.sampled_from([0, 1]), st.tuples(st.sampled_from([0, 1]), st.integers(0, 6))),
    max_size=5,
)


@given(_EVENTS, st.integers(0, 40), _SIZES, _HOW, _MADE, _LETTERS, _LETTERS, st.frozensets(st.integers(0, 30)))
def test_whatever_is_planted_what_is_found_is_what_is_found_one_by_one(
    events: list[tuple[int, int, str, int, int, bool, bool]],
    cut: int,
    sizes: list[int],
    how: str,
    made: list[tuple[int, tuple[int, int], tuple[int, int] | None, bool, str, bool]],
    dead: list[Letter],
    late: list[Letter],
    removed: frozenset[int],
) -> None:
    raw = numbered(events)
    story = a_story(raw, min(cut, len(raw)), sizes, how=how)
    story = story.without(*(each for number, each in enumerate(story.made) if number in removed))
    by_place = {(each.topic, each.place): each for each in raw}
    story = _with(story, raw, made)
    # A letter beyond the last record may be of one that is still to come.
    story = dataclasses.replace(
        story,
        dead=(*story.dead, *(each for each in dead if (each.topic, each.of) in by_place)),
        late=(*story.late, *(each for each in late if (each.topic, each.of) in by_place), Letter(None, (0, 0))),
    )
    assert story.found() == faults(story)


@settings(max_examples=2 * settings().max_examples)
@given(_GOING_ON, st.integers(5, 40), st.integers(5, 40), _SIZES, _HOW, _MADE, st.frozensets(st.integers(0, 5)))
def test_what_is_planted_since_the_last_audit_is_found_as_when_everything_is_read(
    events: list[tuple[int, int, str, int, int, bool, bool]],
    first: int,
    then: int,
    sizes: list[int],
    how: str,
    made: list[tuple[int, Place, Place | None, bool, str, bool]],
    removed: frozenset[int],
) -> None:
    story = _in_two(events, first, then, sizes, how=how)
    assert story.before is not None
    new = [each for each in story.made if each not in story.before.made]
    story = story.without(*(each for number, each in enumerate(new) if number in removed))
    story = _with(story, [*story.raw, *story.later], made)
    everything = dataclasses.replace(story, before=None)
    # Of records of before it says something else, and in which partition keys were it does not know.
    assert _wrong(story) == _wrong(everything)


def test_the_newest_record_is_remembered_if_it_is_not_read_again() -> None:
    # The first one has the time that the watermark comes from, and a filter leaves it out.
    events = [(0, 0, "z", 300, 0, True, True), (0, 0, "a", 215, 0, True, False), (1, 0, "x", 300, 0, True, False)]
    story = _in_two(
        [*events, (1, 0, "y", 310, 0, True, False), (0, 0, "b", 235, 0, True, False)], 3, 5, [3, 1, 1], how="inner"
    )
    assert story.late == (Letter(0, (0, 2)),)
    assert story.found() == set()


def _wrong(story: Story) -> set[str]:
    return {coordinate for kind, coordinate in story.found() if kind != "out of order"}


def _in_two(
    events: list[tuple[int, int, str, int, int, bool, bool]],
    first: int,
    then: int,
    sizes: list[int],
    *,
    how: str,
    ahead: int = 0,
    restarts: frozenset[int] = frozenset(),
) -> Story:
    """A story that goes on after a clean audit."""
    raw = numbered(events)
    first, then = sorted((min(first, len(raw)), min(then, len(raw))))
    before, story = (a_story(raw, cut, sizes, how=how, ahead=ahead, restarts=restarts) for cut in (first, then))
    assert before.found() == set()
    return dataclasses.replace(story, before=before)


def _with(story: Story, raw: list[Raw], made: list[tuple[int, Place, Place | None, bool, str, bool]]) -> Story:
    """And these joined records, behind the others."""
    by_place = {(each.topic, each.place): each for each in raw}
    for partition, first, second, says_right, key, is_readable in made:
        own, other = by_place.get((0, first)), by_place.get((1, second or (-1, 0)))
        one = Made(
            partition,
            0,
            first,
            second,
            own.says if own and says_right else "else",
            other.says if other else "nothing",
            key,
            10**6,
            is_readable,
        )
        end = max([0, *(each.offset + 1 for each in story.made if each.partition == partition)])
        one = dataclasses.replace(one, offset=end, sent_ms=one.sent_ms + len(story.made))
        story = dataclasses.replace(story, made=(*story.made, one))
    return story


def _raw_of(made: Made) -> Raw:
    return next(each for each in RAW if each.topic == 0 and each.place == made.first)


def _second_of(made: Made) -> Raw:
    return next(each for each in RAW if each.topic == 1 and each.place == made.second)


LAST = next(each for each in RAW if each.key == "k18")
"""It has no pair yet."""


def _planted() -> dict[str, tuple[Story, set[tuple[str, str]]]]:
    def one(of: Made, **changes: object) -> tuple[Story, str]:
        story, more = CLEAN.with_one(of, **changes)
        return story, str(more)

    def aside(**letters: tuple[Letter, ...]) -> Story:
        more: dict[str, Any] = {name: (*getattr(CLEAN, name), *each) for name, each in letters.items()}
        return dataclasses.replace(CLEAN, **more)

    raw, second = _raw_of(PAIR), _second_of(PAIR)
    again, again_at = one(PAIR)
    early, early_at = one(PAIR, first=LAST.place, second=None, says_first=LAST.says, says_second="nothing", key="new")
    both, both_at = one(PAIR, second=None, says_second="nothing")
    swapped, swapped_at = one(PAIR, second=OTHER.second, says_second=_second_of(OTHER).says)
    changed = dataclasses.replace(PAIR, says_second="else")
    told = dataclasses.replace(ALONE, says_second="else")
    moved, moved_at = one(PAIR, partition=1 - PAIR.partition, second=(0, 99))
    nowhere, nowhere_at = one(PAIR, first=(0, 99))
    unreadable, unreadable_at = one(PAIR, is_readable=False)
    other_key = dataclasses.replace(PAIR, has_own_key=False)
    far = numbered([(0, 0, "k", 0, 0, True, False), (1, 0, "k", 31, 0, True, False), (1, 0, "k", 30, 0, True, False)])
    far_story = a_story(far, 3, [3])
    far_made = far_story.made[0]
    beyond, more = far_story.with_one(far_made, second=far[1].place, says_second=far[1].says)

    def instead(of: Made, by: Made) -> Story:
        return dataclasses.replace(CLEAN, made=tuple(by if each == of else each for each in CLEAN.made))

    return {
        "a pair is gone": (CLEAN.without(PAIR), {("lost", str(raw))}),
        "a record without a pair is gone": (CLEAN.without(ALONE), {("lost", str(_raw_of(ALONE)))}),
        "a pair came twice": (again, {("doubled", again_at)}),
        "one that may still be paired stands alone": (early, {("phantom", early_at)}),
        "one that is paired stands alone as well": (both, {("doubled", both_at)}),
        "one that should be paired stands alone": (
            instead(PAIR, dataclasses.replace(PAIR, second=None, says_second="nothing")),
            {("lost", str(raw)), ("phantom", str(PAIR))},
        ),
        "unequal keys": (swapped, {("phantom", swapped_at)}),
        "beyond the bounds": (beyond, {("phantom", str(more))}),
        "another value": (instead(PAIR, changed), {("changed", str(PAIR))}),
        "one alone says something of a second": (instead(ALONE, told), {("changed", str(ALONE))}),
        "of no record, in another partition": (moved, {("phantom", moved_at), ("out of order", moved_at)}),
        "of no first record": (nowhere, {("phantom", nowhere_at)}),
        "can't be read": (unreadable, {("phantom", unreadable_at), ("doubled", unreadable_at)}),
        "another key": (instead(PAIR, other_key), {("changed", str(PAIR))}),
        "late and paired": (
            aside(late=(Letter(0, raw.place),)),
            {("doubled", str(PAIR))},
        ),
        "its second is a dead letter, and good": (
            aside(dead=(Letter(1, second.place),)),
            {("doubled", str(PAIR)), ("set aside", str(second)), ("lost", str(raw))},
        ),
        "late, and nothing is so new": (
            aside(late=(Letter(0, LAST.place),)),
            {("set aside", str(LAST))},
        ),
        "a late letter of nothing": (aside(late=(Letter(None, (0, 0)),)), {("phantom", "made.late/0/0")}),
        "a late letter of a record that never was": (aside(late=(Letter(1, (0, 99)),)), {("phantom", "right/0/99")}),
        "a letter with other bytes, twice": (
            aside(late=(Letter(0, LAST.place, 5), Letter(0, LAST.place))),
            {("changed", str(LAST)), ("doubled", str(LAST)), ("set aside", str(LAST))},
        ),
    }


@pytest.mark.parametrize("fault", _planted())
def test_what_is_planted_is_found(fault: str) -> None:
    story, expected = _planted()[fault]
    assert story.found() == expected


def test_an_inner_join_has_no_record_alone() -> None:
    story = a_story(RAW, len(RAW), [3], how="inner")
    assert story.found() == set()
    pair = story.made[0]
    story, more = story.with_one(pair, second=None, says_second="nothing")
    assert story.found() == {("phantom", str(more))}


def test_a_bad_record_of_either_topic_must_be_a_dead_letter() -> None:
    raw = numbered([(0, 0, "a", 0, 0, False, False), (1, 1, "a", 50, 40, True, False)])
    story = a_story(raw, 2, [1])
    assert len(story.dead) == 2
    assert story.found() == set()
    assert dataclasses.replace(story, dead=()).found() == {("lost", str(each)) for each in raw}
    from_future = [
        detail for detail in dataclasses.replace(story, dead=()).joining().findings() if "future" in detail.detail
    ]
    assert len(from_future) == 1


def test_a_record_that_may_still_find_another_is_pending_until_the_watermark_tells() -> None:
    raw = numbered([(0, 0, "a", 0, 0, True, False), (1, 0, "b", 200, 0, True, False), (0, 0, "c", 200, 0, True, False)])
    story = a_story(raw, 3, [3])
    assert story.made == ()
    assert story.found() == set()
    assert story.noted("without a pair as yet, for one may still come") == 2
    assert dataclasses.replace(story, watermark=200 - LATE_AFTER).found() == {("lost", "left/0/0")}
    assert dataclasses.replace(story, watermark=30).found() == set(), "at the bound it may still come"


def test_what_an_earlier_run_wrote_again_is_noted_and_what_one_run_wrote_twice_is_found() -> None:
    story = a_story(RAW, len(RAW), [3], rebuilt_at=len(RAW))
    assert story.found() == set()
    assert story.noted("written again, by a rebuild") == len(CLEAN.made)
    newest = max(story.made, key=lambda each: each.sent_ms)
    again, more = story.with_one(newest)
    assert again.found() == {("doubled", str(more))}
    only_old = [each for each in story.made if each.sent_ms < story.begun_ms]
    assert len(only_old) == len(CLEAN.made)
    assert dataclasses.replace(story, made=tuple(only_old)).found() == set(), "an earlier run has each pair"


def test_what_a_redrive_sent_again_is_noted() -> None:
    story, _ = CLEAN.with_one(PAIR, is_redriven=True)
    assert story.found() == set()
    assert story.noted("sent again, by a redrive") == 1


def test_pairs_of_deleted_records_are_looked_at_as_far_as_they_go() -> None:
    raw, second = _raw_of(PAIR), _second_of(PAIR)
    low = dataclasses.replace(CLEAN, low=(raw.offset + 1, second.offset + 1))
    assert low.found() == set()
    assert low.noted("of records that are deleted by now, compared as far as these are there") >= 1
    half = dataclasses.replace(CLEAN, low=(0, second.offset + 1))
    assert half.found() == set()
    assert ("changed", str(PAIR)) in dataclasses.replace(
        half, made=tuple(dataclasses.replace(e, says_first="else") if e == PAIR else e for e in half.made)
    ).found()


def test_a_pair_is_forgotten_only_if_its_partition_has_deleted_some_and_the_contract_keeps_it_no_longer() -> None:
    later = {"kept_since_ms": 10**12}
    gone = CLEAN.without(PAIR)
    assert dataclasses.replace(gone, known=later).found() == {("lost", str(_raw_of(PAIR)))}
    old = dataclasses.replace(gone, known=later, made_low=1, made=tuple(e for e in gone.made if e.offset >= 1))
    # The times of the story's records are small, and those of what is left are greater.
    left = tuple(dataclasses.replace(each, sent_ms=10**9) for each in old.made)
    assert dataclasses.replace(old, made=left).found() == set()
    assert dataclasses.replace(old, made=left, known={}).found() != set()


@pytest.mark.parametrize("watermark_of", ["slower", "faster"])
def test_partitions_that_have_nothing_left_keep_nothing_from_being_looked_at(watermark_of: str) -> None:
    of_both = [(topic, 0, f"{topic}{minute}", minute, 0, True, False) for minute in (0, 400, 800) for topic in (0, 1)]
    raw = numbered(of_both)
    more = numbered([*of_both, (0, 0, "0900", 900, 0, True, False), (1, 0, "1900", 900, 0, True, False)])[-2:]
    # The other partitions begin behind their only records.
    how: dict[str, Any] = {"low": (1, 1), "known": {"watermark_of": watermark_of}}
    first = dataclasses.replace(a_story(raw, len(raw), [2]), **how)
    assert first.found() == set()
    assert first.joining().newest == (800 * MINUTE, 800 * MINUTE)
    second = dataclasses.replace(a_story([*raw, *more], len(raw) + 2, [2]), before=first, **how)
    assert second.found() == set()
    for story, left in ((first, raw[-2]), (second, more[0])):
        late = dataclasses.replace(story, late=(Letter(0, left.place),))
        assert late.found() == {("set aside", str(left))}
        alone = Made(1, 99, left.place, None, left.says, key=left.key, sent_ms=10**6)
        early = dataclasses.replace(story, made=(*story.made, alone))
        assert early.found() == {("phantom", str(alone))}

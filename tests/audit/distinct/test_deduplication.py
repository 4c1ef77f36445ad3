"""What is found in distinct events, and that nothing is found where nothing is wrong."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.audit.distinct.story import Once, Story, a_story
from tests.audit.joins.story import LATE_AFTER, MINUTE, Letter, Raw, numbered

_NAMES = ["a1", "a2", "b1"]
_EVENTS = st.lists(
    st.tuples(
        st.just(0),
        st.sampled_from([0, 1]),
        st.sampled_from(_NAMES),
        st.integers(0, 400),
        st.sampled_from([0, 0, 0, 5, 40]),
        st.sampled_from([True, True, True, True, False]),
        st.sampled_from([False, False, False, True]),
    ),
    max_size=40,
)
_GOING_ON = st.lists(
    st.tuples(
        st.just(0),
        st.sampled_from([0, 0, 1]),
        st.sampled_from(_NAMES),
        st.integers(0, 100),
        st.just(0),
        st.sampled_from([True, True, True, True, True, False]),
        st.sampled_from([False, False, False, False, True]),
    ),
    min_size=10,
    max_size=40,
).map(lambda events: [(*each[:3], each[3] + 15 * number, *each[4:]) for number, each in enumerate(events)])
"""Later ones are of later times, so that what came first is forgotten at some time."""
_SIZES = st.lists(st.integers(1, 9), min_size=1, max_size=4)
Event = tuple[int, int, str, int, int, bool, bool]


def _sent_again() -> list[Raw]:
    """Ten events, one each quarter of an hour; the third and the seventh are sent again in the other partition, the fifth in its own."""
    events: list[Event] = []
    for number in range(10):
        name, at = f"{'ab'[number % 2]}{number}", number * 15
        events.append((0, number % 2, name, at, 0, True, False))
        if number in (3, 7):
            events.append((0, 1 - number % 2, name, at, 0, True, False))
        if number == 5:
            events.append((0, number % 2, name, at, 0, True, False))
    return numbered(events)


RAW = _sent_again()
CLEAN = a_story(RAW, len(RAW), [4])


def _made(name: str) -> Once:
    return next(each for each in CLEAN.made if each.name == name)


def _raw(name: str) -> list[Raw]:
    return [each for each in RAW if each.key == name]


def test_the_story_has_events_that_were_sent_again_and_is_clean() -> None:
    assert CLEAN.found() == set()
    assert (len(RAW), len(CLEAN.made)) == (13, 10)
    assert CLEAN.noted("let through") == 10
    assert CLEAN.noted("left out, for another record of the event is there") == 3
    assert CLEAN.noted("of them of a time further from the other's than the lateness") == 0


@given(_EVENTS, st.integers(0, 40), _SIZES, st.sampled_from([0, 3, 10**6]), st.frozensets(st.integers(1, 12)))
def test_whatever_comes_and_however_it_is_cut_what_the_pipeline_makes_is_clean(
    events: list[Event], cut: int, sizes: list[int], ahead: int, restarts: frozenset[int]
) -> None:
    raw = numbered(events)
    assert a_story(raw, min(cut, len(raw)), sizes, ahead=ahead, restarts=restarts).found() == set()


@given(_EVENTS, _SIZES, st.lists(st.integers(1, 9), min_size=1, max_size=3), st.integers(1, 40))
def test_a_rebuild_that_batches_otherwise_is_clean(
    events: list[Event], sizes: list[int], more: list[int], at: int
) -> None:
    # Only by its records is an earlier run known, so it lets one through at once.
    raw = numbered([(0, 0, "z", 0, 0, True, False), *events])
    story = a_story(raw, len(raw), [*sizes, *more], rebuilt_at=min(at + 1, len(raw)))
    assert any(each.sent_ms < story.begun_ms for each in story.made)
    assert story.found() == set()


@settings(max_examples=2 * settings().max_examples)
@given(
    _GOING_ON,
    st.integers(5, 40),
    st.integers(5, 40),
    _SIZES,
    st.sampled_from([0, 3]),
    st.frozensets(st.integers(1, 12)),
)
def test_an_audit_that_begins_where_the_last_one_ended_is_clean(
    events: list[Event], first: int, then: int, sizes: list[int], ahead: int, restarts: frozenset[int]
) -> None:
    assert _in_two(events, first, then, sizes, ahead=ahead, restarts=restarts).found() == set()


@settings(max_examples=2 * settings().max_examples)
@given(_GOING_ON, st.integers(5, 40), st.integers(5, 40), _SIZES, st.integers(0, 20))
def test_what_is_lost_since_the_last_audit_is_found(
    events: list[Event], first: int, then: int, sizes: list[int], number: int
) -> None:
    story = _in_two(events, first, then, sizes)
    assert story.before is not None
    new = [each for each in story.made if each not in story.before.made]
    inside = [each for each in new if each.first in {raw.place for raw in story.raw if raw not in story.before.raw}]
    if not inside:
        return
    gone = inside[number % len(inside)]
    lost = story.without(gone).found()
    others = [each for each in story.made if each.name == gone.name and each != gone]
    if not others:
        assert ("lost", f"left/{gone.first[0]}/{gone.first[1]}") in lost
    # What is read of it is less, so it may know of a loss where an audit of everything excuses it by an event of long ago.
    assert dataclasses.replace(story.without(gone), before=None).found() <= lost


def _in_two(
    events: list[Event],
    first: int,
    then: int,
    sizes: list[int],
    *,
    ahead: int = 0,
    restarts: frozenset[int] = frozenset(),
) -> Story:
    """A story that goes on after a clean audit."""
    raw = numbered(events)
    first, then = sorted((min(first, len(raw)), min(then, len(raw))))
    before, story = (a_story(raw, cut, sizes, ahead=ahead, restarts=restarts) for cut in (first, then))
    assert before.found() == set()
    return dataclasses.replace(story, before=before)


def _planted() -> dict[str, tuple[Story, set[tuple[str, str]]]]:
    def one(of: Once, **changes: object) -> tuple[Story, str]:
        story, more = CLEAN.with_one(of, **changes)
        return story, str(more)

    def aside(**letters: tuple[Letter, ...]) -> Story:
        more: dict[str, Any] = {name: (*getattr(CLEAN, name), *each) for name, each in letters.items()}
        return dataclasses.replace(CLEAN, **more)

    def instead(of: Once, **changes: Any) -> Story:
        by = dataclasses.replace(of, **changes)
        return dataclasses.replace(CLEAN, made=tuple(by if each == of else each for each in CLEAN.made))

    alone, again, in_its_own = _made("a2"), _made("b3"), _made("b5")
    (single,), (here, there), (former, latter) = _raw("a2"), _raw("b3"), _raw("b5")
    gone = instead(alone, first=(0, 99))
    twice, twice_at = one(alone)
    copy, copy_at = one(again, first=there.place, says=there.says)
    moved, moved_at = one(alone, partition=1 - alone.partition, first=(0, 99))
    unreadable, unreadable_at = one(alone, is_readable=False)
    nothing, nothing_at = one(alone, first=(-1, 0))
    left_out = dataclasses.replace(
        CLEAN, raw=tuple(dataclasses.replace(each, is_left_out=True) if each == single else each for each in RAW)
    )
    a4, a6 = _made("a4"), _made("a6")
    swapped = dataclasses.replace(
        CLEAN,
        made=tuple(
            dataclasses.replace(each, offset={a4: a6, a6: a4}[each].offset) if each in (a4, a6) else each
            for each in CLEAN.made
        ),
    )
    last = _raw("b9")[0]
    return {
        "one is gone": (CLEAN.without(alone), {("lost", str(single))}),
        "one that was sent twice is gone": (CLEAN.without(again), {("lost", str(here)), ("lost", str(there))}),
        "it names another record": (gone, {("phantom", str(alone)), ("lost", str(single))}),
        "its id is there twice": (twice, {("doubled", twice_at)}),
        # Of b7 it was the one in the other partition that was let through, and this lies before it there.
        "its copy was let through, too": (copy, {("doubled", copy_at), ("out of order", copy_at)}),
        "a copy of the other partition was let through in its place": (
            instead(again, first=there.place, says=there.says),
            set(),
        ),
        "a copy behind it was let through in its place": (
            instead(in_its_own, first=latter.place, says=latter.says),
            {("out of order", str(former))},
        ),
        "another value": (instead(alone, says="else"), {("changed", str(alone))}),
        "another value, for its version lacks a field": (instead(alone, says="else", is_older=True), set()),
        "another key": (instead(alone, has_own_key=False), {("changed", str(alone))}),
        "of no record, in another partition": (moved, {("phantom", moved_at), ("out of order", moved_at)}),
        "an id that is no coordinate": (nothing, {("phantom", nothing_at)}),
        "can't be read": (unreadable, {("phantom", unreadable_at), ("doubled", unreadable_at)}),
        "a filter leaves it out": (left_out, {("phantom", str(alone))}),
        "two of one key in another order": (swapped, {("out of order", f"made/{a6.partition}/{a6.offset}")}),
        "late, and let through": (
            aside(late=(Letter(0, single.place),)),
            {("doubled", str(alone))},
        ),
        "a dead letter that is good, and let through": (
            aside(dead=(Letter(0, single.place),)),
            {("doubled", str(alone)), ("set aside", str(single))},
        ),
        "a late letter of nothing": (aside(late=(Letter(None, (0, 0)),)), {("phantom", "made.late/0/0")}),
        "a late letter of a record that never was": (aside(late=(Letter(0, (0, 99)),)), {("phantom", "left/0/99")}),
        "a letter with other bytes, twice": (
            aside(late=(Letter(0, there.place, 5), Letter(0, there.place))),
            {("changed", str(there)), ("doubled", str(there))},
        ),
        "the newest of all is late": (
            dataclasses.replace(CLEAN.without(_made("b9")), late=(Letter(0, last.place),)),
            {("set aside", str(last))},
        ),
    }


@pytest.mark.parametrize("fault", _planted())
def test_what_is_planted_is_found(fault: str) -> None:
    story, expected = _planted()[fault]
    assert story.found() == expected


def test_a_bad_record_must_be_a_dead_letter() -> None:
    raw = numbered([(0, 0, "a", 0, 0, False, False), (0, 1, "b", 50, 40, True, False)])
    story = a_story(raw, 2, [1])
    assert (len(story.dead), story.made, story.found()) == (2, (), set())
    assert dataclasses.replace(story, dead=()).found() == {("lost", str(each)) for each in raw}


@pytest.mark.parametrize(("minutes", "found"), [(LATE_AFTER, True), (LATE_AFTER + 1, False)])
def test_an_event_may_come_again_when_it_is_forgotten_and_not_before(minutes: int, found: bool) -> None:
    raw = numbered([(0, 0, "a", 0, 0, True, False), (0, 0, "a", minutes, 0, True, False)])
    story = a_story(raw, 2, [2])
    (first,) = story.made
    assert story.found() == set(), "on a quiet topic it is left out for longer"
    assert story.noted("of them of a time further from the other's than the lateness") == (not found)
    both, again = story.with_one(first, first=raw[1].place, minute=minutes, says=raw[1].says)
    assert both.found() == ({("doubled", str(again))} if found else set())


def test_one_of_a_raw_record_behind_the_cut_is_looked_at_and_need_not_be_there() -> None:
    story = a_story(RAW, 4, [4])
    assert any(each.first in {raw.place for raw in RAW[4:]} for each in story.made)
    assert story.found() == set()
    ahead = next(each for each in story.made if each.first == RAW[6].place)
    assert story.without(ahead).found() == set()
    other = dataclasses.replace(ahead, says="else")
    changed = dataclasses.replace(story, made=tuple(other if each == ahead else each for each in story.made))
    assert changed.found() == {("changed", str(ahead))}


def test_what_an_earlier_run_let_through_is_noted_and_what_one_run_let_through_twice_is_found() -> None:
    story = a_story(RAW, len(RAW), [4], rebuilt_at=len(RAW))
    assert story.found() == set()
    assert story.noted("written again, by a rebuild") == len(CLEAN.made)
    newest = max(story.made, key=lambda each: each.sent_ms)
    again, more = story.with_one(newest)
    assert again.found() == {("doubled", str(more))}
    only_old = tuple(each for each in story.made if each.sent_ms < story.begun_ms)
    assert dataclasses.replace(story, made=only_old).found() == set(), "an earlier run has let each through"


def test_what_a_redrive_sent_again_is_noted() -> None:
    story, _ = CLEAN.with_one(_made("a2"), is_redriven=True)
    assert story.found() == set()
    assert story.noted("sent again, by a redrive") == 1


def test_where_records_are_deleted_what_may_be_of_their_events_is_not_lost() -> None:
    here, there = _raw("b3")
    without = CLEAN.without(_made("b3"))
    assert without.found() == {("lost", str(here)), ("lost", str(there))}
    # The first one is deleted, and nobody knows of which event it was.
    low = dataclasses.replace(without, low=max(here.offset, there.offset) + 1)
    assert low.found() == set()
    assert dataclasses.replace(CLEAN, low=4).found() == set()
    # Of the record that was let through for both nothing is left.
    left = tuple(dataclasses.replace(each, sent_ms=10**9) for each in without.made if each.offset >= 1)
    deleted = dataclasses.replace(without, made=left, made_low=1)
    assert dataclasses.replace(deleted, known={"kept_since_ms": 10**12}).found() == set()
    assert deleted.found() != set()


def test_a_partition_that_has_nothing_left_excuses_nothing_that_is_newer_than_what_it_had() -> None:
    raw = numbered([(0, 0, name, minute, 0, True, False) for name, minute in (("a", 0), ("b", 400), ("c", 800))])
    story = a_story(raw, len(raw), [1])
    assert [each.name for each in story.made] == ["a", "b", "c"]
    # The other partition begins behind its only record, too.
    gone = dataclasses.replace(story.without(*story.made), low=1)
    assert gone.found() == {("lost", str(raw[2]))}
    assert dataclasses.replace(gone, known={"raw_kept_since_ms": 800 * 60_000}).found() == set()


def test_a_partition_that_has_nothing_left_keeps_no_late_record_from_being_looked_at() -> None:
    raw = numbered([(0, 0, name, minute, 0, True, False) for name, minute in (("a", 0), ("b", 400), ("c", 800))])
    more = numbered([*((0, 0, "z", 0, 0, True, False) for _ in raw), (0, 0, "d", 900, 0, True, False)])[-1]
    first = dataclasses.replace(a_story(raw, len(raw), [1]), low=1)
    assert (first.found(), first.deduplication().newest) == (set(), (800 * MINUTE,))
    late = dataclasses.replace(first.without(first.made[-1]), late=(Letter(0, raw[-1].place),))
    assert late.found() == {("set aside", str(raw[-1]))}
    second = dataclasses.replace(a_story([*raw, more], 4, [1]), low=1, before=first)
    assert second.found() == set()
    late = dataclasses.replace(second.without(second.made[-1]), late=(Letter(0, more.place),))
    assert late.found() == {("set aside", str(more))}


def test_a_copy_in_the_place_of_an_earlier_one_is_found_although_older_records_are_deleted() -> None:
    sent = (("z", 0), ("b", 400), ("a", 800), ("a", 800))
    raw = numbered([(0, 0, name, minute, 0, True, False) for name, minute in sent])
    story = a_story(raw, len(raw), [4])
    former, latter = raw[2:]
    own = next(each for each in story.made if each.first == former.place)
    instead, _ = story.without(own).with_one(own, first=latter.place, says=latter.says)
    assert dataclasses.replace(instead, low=1).found() == {("out of order", str(former))}


def test_an_event_whose_record_was_deleted_since_the_last_audit_may_be_left_out() -> None:
    raw = numbered([(0, 0, "a", 0, 0, True, False), (0, 0, "a", 0, 0, True, False)])
    before, now = a_story(raw[:1], 1, [1]), a_story(raw, 2, [1])
    (first,) = now.made
    deleted = dataclasses.replace(now.without(first), before=before, made_low=first.offset + 1)
    assert deleted.found() == set()
    assert dataclasses.replace(deleted, made_low=0).found() == {("lost", str(raw[1]))}

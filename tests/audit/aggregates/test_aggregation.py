"""Every fault planted between a raw topic and an aggregate is found, and nothing else is, whatever the batches were."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from services.audit.hops.landed import Landing
from services.audit.records.groups import NEVER, NO_BATCH
from services.audit.records.window import Span, Window
from services.audit.sources.lake_table import Rows
from services.audit.values.place import WHOLE, code
from tests.audit.aggregates.story import MINUTE, Made, Pipeline, Raw, Story, a_story, found, groups_of, numbered

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


@given(events, st.integers(0, 60), sizes, st.booleans(), st.integers(0, 30), st.sampled_from([15, 5, 7, 10]))
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
    before = [each.minute * MINUTE for each in story.raw if each.offset < audited and each.is_readable]
    left = {each.partition for each in story.raw if each.offset >= audited}
    # Where nothing is left of a partition, the contract alone tells how old it was.
    sent = [(each.sent_minute or 0) * 60_000 for each in story.raw if each.partition not in left]
    known = {"raw_kept_since_ms": max(sent, default=0)} if is_deleted else {}
    story = replace(story, low=audited, known=known) if is_deleted else replace(story, audited=audited)
    assert replace(story, known=known | {"newest_before": max(before, default=NEVER)}).found() == set()
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


def test_where_windows_overlap_those_of_few_records_tell_no_others() -> None:
    raw = numbered([(0, "EST", minute, 0, True, False) for minute in (7, 27, 47)])
    # Each lies in one window: from 0, 20 and 40 on.
    story = a_story(raw, len(raw), [1], slide=10)
    assert story.found() == set()
    assert replace(story, made=tuple(each for each in story.made if each.begins != 20)).found() == {("lost", "raw/0/1")}


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


def test_a_group_whose_only_record_is_late_for_other_windows_is_missed() -> None:
    events = [("EST", 0), ("EST", 12), ("EST", 135), ("WST", 8)]
    raw = numbered([(0, origin, minute, 0, True, False) for origin, minute in events])
    # The watermark was at 15: of the windows with minute 8 that from 5 on alone is not over.
    story = a_story(raw, len(raw), [1], slide=5)
    assert (story.late, story.found()) == ((code(0, 3),), set())
    alone = [each for each in story.made if each.origin == "WST"]
    assert [each.begins for each in alone] == [5]
    assert replace(story, made=tuple(each for each in story.made if each not in alone)).found() == {("lost", "raw/0/3")}


def test_after_a_rebuild_nobody_knows_what_lateness_the_run_before_had() -> None:
    raw = numbered([(0, "EST", minute, 0, True, False) for minute in (0, 12, 135, 8)])
    story = a_story(raw, len(raw), [1], slide=5)
    wrong = replace(story, over={code(0, 3): 20})
    assert ("set aside", "raw/0/3") in wrong.found()
    again = tuple(replace(each, run="b", offset=each.offset + 100) for each in story.made)
    assert ("set aside", "raw/0/3") not in replace(wrong, made=(*story.made, *again)).found()


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
    story = replace(GOOD, audited=1, known={"newest_before": 3 * MINUTE})
    assert story.found() == set()
    assert replace(story, made=changed(0, count=9)).found() == set()
    assert replace(story, made=changed(0, count=0)).found() == {("lost", named(0))}
    assert replace(story, made=changed(3, count=9)).found() == {("doubled", named(3))}
    assert story.aggregation().newest == 202 * MINUTE
    assert replace(story, known={}).aggregation().newest is None


def test_what_was_sent_after_the_deleted_records_is_counted_exactly() -> None:
    story = replace(GOOD, low=1)
    # What is left of partition 0 was sent from minute 14 on.
    assert story.found() == set()
    assert replace(story, made=changed(1, count=9)).found() == set(), "an event may be an hour ahead"
    assert replace(story, made=changed(3, count=9)).found() == {("doubled", named(3))}
    kept = {"raw_kept_since_ms": 201 * 60_000}
    assert replace(story, known=kept, made=changed(3, count=9)).found() == set(), "what is sent may be in any order"


def _with_count(story: Story, origin: str, begins: int, count: int) -> Story:
    made = tuple(
        replace(each, count=count) if (each.origin, each.begins) == (origin, begins) else each for each in story.made
    )
    assert made != story.made
    return replace(story, made=made)


def test_a_partition_that_has_nothing_left_keeps_no_group_from_being_counted_exactly() -> None:
    """Of newer windows than the contract lets retention delete."""
    old = [(0, "EST", 0), (1, "NTH", 3), (1, "NTH", 14)]
    now = [(0, "EST", 400), (0, "EST", 401), (0, "STH", 402)]
    raw = numbered([(partition, origin, minute, 0, True, False) for partition, origin, minute in [*old, *now]])
    # Partition 1 has had four records, and more come, of which the first audit knows nothing.
    more = [Raw(0, 4, "EST", 600), Raw(1, 4, "NTH", 601), Raw(1, 5, "NTH", 602)]
    kept = {"raw_kept_since_ms": 20 * 60_000}
    first = replace(a_story(raw, len(raw), [2]), gone={1: 4}, known=kept)
    assert first.found() == set()
    assert {kind for kind, _ in _with_count(first, "EST", 390, 9).found()} == {"doubled"}
    wrongly_late = replace(first, late=(raw[-1].at,), made=tuple(each for each in first.made if each.origin != "STH"))
    assert wrongly_late.found() == {("set aside", "raw/0/3")}
    assert _with_count(first, "EST", 0, 9).found() == set(), "of before that nobody knows"
    newest = first.aggregation().newest
    assert newest == 402 * MINUTE
    second = replace(a_story([*raw, *more], len(raw) + 3, [2]), gone={1: 4}, audited=4)
    second = replace(second, known=kept | {"newest_before": newest})
    assert second.found() == set()
    assert {kind for kind, _ in _with_count(second, "NTH", 600, 9).found()} == {"doubled"}


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


NEWER = (*also(0, batch=7)[:-1], replace(MORE[-1], batch=7))
"""The first group was written twice, the first time with less."""
FIRST_OF_TWO = (replace(GOOD.made[0], count=1), *NEWER[1:])


def sent_again(made: Sequence[Made], index: int) -> tuple[Made, ...]:
    """By a redrive, behind all others."""
    return (*made, replace(made[index], offset=made[-1].offset + 1, is_redriven=True))


def test_a_record_that_a_redrive_sent_again_is_no_fault_while_it_is_the_newest() -> None:
    again = sent_again(GOOD.made, 0)
    story = replace(GOOD, made=again)
    aggregation = story.aggregation()
    assert found(list(aggregation.findings())) == set()
    assert sum(tally.notes["sent again by a redrive"] for tally in aggregation.tallies.values()) == 1
    assert replace(story, made=again[1:]).found() == set(), "compaction has removed the first one"
    assert replace(GOOD, made=sent_again(FIRST_OF_TWO, -1)).found() == set()


def test_an_older_record_that_a_redrive_made_the_newest_is_told_with_the_cure() -> None:
    cure = "a redrive has sent it again: the next record of its group puts it right, or a rebuild"
    assert replace(GOOD, made=FIRST_OF_TWO).found() == set()
    again = sent_again(FIRST_OF_TWO, 0)
    findings = list(replace(GOOD, made=again).aggregation().findings())
    assert found(findings) == {("out of order", last(again))}
    assert findings[0].detail == f"EST/0: it lies behind {last(MORE)}, which is newer, and {cure}"
    # And behind both, so that the newer one is the newest again.
    assert replace(GOOD, made=sent_again(again, -2)).found() == set()
    alone = tuple(each for each in again if each.text != "EST/0" or each.is_redriven)
    findings = list(replace(GOOD, made=alone).aggregation().findings())
    assert found(findings) == {("lost", last(again))}
    assert findings[0].detail == f"EST/0: count is 1, and 2 raw records belong there, and {cure}"


def test_what_a_redrive_sent_again_may_outlive_its_like() -> None:
    known = {"kept_since_ms": 100 * 60_000}
    story = replace(GOOD, made=tuple(each for each in GOOD.made if each.begins), made_low=1, known=known)
    assert story.found() == set(), "they are deleted by now"
    old = replace(GOOD.made[4], offset=9, is_redriven=True, sent_ms=-(10**6))
    assert replace(story, made=(*story.made, old)).found() == set()


def test_a_record_from_the_future_is_a_dead_letter_by_rights() -> None:
    future = Raw(1, 3, "NTH", 10_000, sent_minute=200)
    story = replace(GOOD, raw=(*GOOD.raw, future), dead=(*GOOD.dead, future.at))
    assert story.found() == set()
    assert story.aggregation().newest == 202 * MINUTE, "or no group would be compared by the next audit"


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
    window, kept = Window("made", {0: Span(0, 0, 3, 0)}), groups_of([replace(GOOD.made[0], partition=0, offset=2)])
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

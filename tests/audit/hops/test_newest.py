"""A table with the newest record of each key beside its topic, whatever compaction has removed of that, while records go on coming; and faults in it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.audit.hops.newest import NewestLanding
from services.audit.records.records import Records, payload_digests
from services.audit.records.window import Span, Window
from services.audit.sources.lake_table import Rows
from services.audit.values.digest import digests
from services.audit.values.place import WHOLE, code
from tests.audit.records_at import records_at

TOPIC = "depots.observed.v1"


class Record(NamedTuple):
    key: str
    kind: str
    """`good`; `empty` has no value, `bad` is a dead letter."""


Log = Sequence[Record]
"""Of one partition; a record's place is its offset."""


class Story(NamedTuple):
    log: Log
    cut: int
    """Up to here the audit has read when it looks at the table."""
    position: int
    """Up to here the table has taken in; at least up to the cut."""
    cleaned: tuple[int, int]
    """How far compaction has come when the audit reads before the cut, and behind it."""
    forgotten: int
    """Records without a value before this one are gone, too."""


@st.composite
def stories(draw: st.DrawFn) -> Story:
    log = draw(st.lists(st.builds(Record, st.sampled_from("abc"), st.sampled_from(("good", "good", "empty", "bad")))))
    cut = draw(st.integers(0, len(log)))
    first = draw(st.integers(0, len(log)))
    return Story(
        log,
        cut,
        draw(st.integers(cut, len(log))),
        (first, draw(st.integers(first, len(log)))),
        draw(st.integers(0, min(cut, first))),
    )


def compacted(story: Story, upto: int) -> dict[int, Record]:
    """What is left behind a pass over the records before an offset."""
    last = {record.key: offset for offset, record in enumerate(story.log[:upto])}
    return {
        offset: record
        for offset, record in enumerate(story.log)
        if (offset >= upto or last[record.key] == offset) and not (record.kind == "empty" and offset < story.forgotten)
    }


def there(story: Story) -> dict[int, Record]:
    """What the audit has read."""
    before, behind = (compacted(story, upto) for upto in story.cleaned)
    return {offset: each for offset, each in before.items() if offset < story.cut} | {
        offset: each for offset, each in behind.items() if offset >= story.cut
    }


def table(story: Story) -> dict[str, int]:
    """As the lake makes it: the offset of each key's row."""
    newest = {record.key: offset for offset, record in enumerate(story.log[: story.position])}
    return {key: offset for key, offset in newest.items() if story.log[offset].kind == "good"}


def read(records: Mapping[int, Record], partition: int = 0) -> Records:
    keys = [each.key.encode() for each in records.values()]
    values = [None if each.kind == "empty" else str(offset).encode() for offset, each in records.items()]
    at = [code(partition, offset) for offset in records]
    readable = [each.kind == "good" for each in records.values()]
    payload = payload_digests(keys, values)
    row = np.where(readable, np.array(at, np.int64) + 1, 0).astype(np.uint64)
    return records_at(at, at, readable, digests(pa.array(keys, pa.binary())), payload=payload, row=row)


def rows(of: Collection[tuple[str, int]], partition: int = 0) -> Rows:
    at = np.array([code(partition, offset) for _, offset in of], np.int64)
    key = digests(pa.array([key.encode() for key, _ in of], pa.binary()))
    return Rows(at, at, np.full(len(at), WHOLE), np.zeros(len(at), np.int64), (at + 1).astype(np.uint64), key)


def findings(story: Story, of: Collection[tuple[str, int]], *, letters: bool = True) -> list[tuple[str, str]]:
    """Without `letters` they are all deleted by now."""
    landing = NewestLanding(
        Window(TOPIC, {0: Span(0, 0, story.cut, 0)}),
        "depots",
        [read(there(story))],
        [rows(of)],
        {0: story.position},
        own_coordinate=True,
        expired_ms=-1 if letters else len(story.log),
    )
    bad = [code(0, offset) for offset, record in enumerate(story.log) if record.kind == "bad" and letters]
    none = np.zeros(0, np.int64)
    return [(each.kind, each.coordinate) for each in landing.findings(np.array(bad, np.int64), none, none)]


@given(stories())
def test_a_right_table_is_clean_whatever_is_there_of_its_topic(story: Story) -> None:
    assert findings(story, table(story).items()) == []
    assert findings(story, table(story).items(), letters=False) == []


@given(stories(), st.data())
def test_a_fault_in_the_row_of_a_key_without_later_records_is_found(story: Story, data: st.DataObject) -> None:
    right = table(story)
    later = {each.key for each in story.log[story.position :]}
    closed = sorted(right.keys() - later)
    if not closed:
        return
    key = data.draw(st.sampled_from(closed))
    at = f"{TOPIC}/0/{right[key]}"
    others = [(each, offset) for each, offset in right.items() if each != key]
    older = data.draw(st.integers(0, len(story.log) + 3).filter(lambda offset: offset != right[key]))
    assert findings(story, others) == [("lost", at)]
    assert findings(story, [*others, (key, older)]) == [("changed", at)]
    assert [kind for kind, _ in findings(story, [*others, (key, right[key]), (key, older)])].count("doubled") == 1


@given(stories(), st.data())
def test_a_row_of_a_key_that_should_have_none_is_found(story: Story, data: st.DataObject) -> None:
    right = table(story)
    later = {each.key for each in story.log[story.position :]}
    gone = sorted({*"abcd"} - right.keys() - later)
    key, at = data.draw(st.sampled_from(gone or ["d"])), data.draw(st.integers(0, len(story.log) + 3))
    if key in later or key in right:
        return
    ((kind, named),) = findings(story, [*right.items(), (key, at)])
    # Of a record that is a dead letter, too, it has other values.
    its_own = at < len(story.log) and story.log[at] == (key, "bad")
    assert (kind in ("phantom", "changed") if its_own else kind == "phantom", named) == (True, f"{TOPIC}/0/{at}")


def test_a_dead_letter_that_can_be_read_and_a_record_that_is_neither_row_nor_letter_are_found() -> None:
    window = Window(TOPIC, {0: Span(0, 0, 3, 0)})
    log = {0: Record("a", "good"), 1: Record("b", "good"), 2: Record("c", "bad")}
    landing = NewestLanding(window, "depots", [read(log)], [rows([("b", 1)])], {0: 3}, own_coordinate=True)
    dead, none = np.array([code(0, 0)], np.int64), np.zeros(0, np.int64)
    told = {(each.kind, each.coordinate) for each in landing.findings(dead, none, none)}
    assert told == {("set aside", f"{TOPIC}/0/0"), ("lost", f"{TOPIC}/0/2")}
    again = NewestLanding(window, "depots", [read(log)], [rows([("b", 1)])], {0: 3}, own_coordinate=True)
    told = {(each.kind, each.coordinate) for each in again.findings(dead, none, dead)}
    assert told == {("lost", f"{TOPIC}/0/2")}


@pytest.mark.parametrize(("expired_ms", "told"), [(0, [("lost", f"{TOPIC}/0/1")]), (1, [])])
def test_a_bad_record_outlives_its_dead_letter(expired_ms: int, told: list[tuple[str, str]]) -> None:
    window, none = Window(TOPIC, {0: Span(0, 0, 2, 0)}), np.zeros(0, np.int64)
    log = read({0: Record("b", "good"), 1: Record("a", "bad")})

    def landing(*of: tuple[str, int]) -> NewestLanding:
        given = window, "depots", [log], [rows([("b", 0), *of])], {0: 2}
        return NewestLanding(*given, own_coordinate=True, expired_ms=expired_ms)

    right = landing()
    assert [(each.kind, each.coordinate) for each in right.findings(none, none, none)] == told
    noted = {note: count for note, count in right.tallies[0].notes.items() if count}
    assert noted == ({} if told else {"that can't be decoded, whose dead letters are deleted by now": 1})
    # It has no row, nor has its key, in any case.
    assert [each.kind for each in landing(("a", 1)).findings(none, none, none)] == ["changed"]
    assert len([*landing(("a", 0)).findings(none, none, none)]) == 1


def test_rows_of_one_key_in_two_partitions_are_told() -> None:
    window = Window(TOPIC, {0: Span(0, 0, 1, 0), 1: Span(0, 0, 1, 0)})
    one = {0: Record("a", "good")}
    landing = NewestLanding(
        window,
        "depots",
        [read(one), read(one, 1)],
        [rows([("a", 0)]), rows([("a", 0)], 1)],
        {0: 1, 1: 1},
        own_coordinate=True,
    )
    none = np.zeros(0, np.int64)
    assert [(each.kind, each.coordinate) for each in landing.findings(none, none, none)] == [
        ("doubled", f"{TOPIC}/1/0")
    ]


@pytest.mark.parametrize(("low", "told"), [(0, [("phantom", f"{TOPIC}/0/1")]), (2, [])])
def test_a_row_of_a_record_that_retention_has_deleted_is_not_compared(low: int, told: list[tuple[str, str]]) -> None:
    window = Window(TOPIC, {0: Span(low, 0, 3, 0)})
    landing = NewestLanding(
        window, "depots", [read({2: Record("a", "good")})], [rows([("a", 2), ("b", 1)])], {0: 3}, own_coordinate=True
    )
    none = np.zeros(0, np.int64)
    assert [(each.kind, each.coordinate) for each in landing.findings(none, none, none)] == told

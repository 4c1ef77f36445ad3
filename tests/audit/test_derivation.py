"""The comparison by columns against the same in plain Python, for whatever comes."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from services.audit.hops.derived import Derivation, Made
from services.audit.records.recompute import RIGHT
from services.audit.records.records import Records
from services.audit.records.window import Span, Window
from services.audit.values.place import WHOLE, code, coordinate

LOW, END, LATEST = 2, 12, 15
"""Of the raw topic's one partition: what is there begins at 2, the cut is at 12, and three more came since."""


def records(
    topic: str,
    sources: list[int],
    shared: list[int],
    revisions: list[int],
    at: list[int],
    redriven: list[bool],
    parts: Sequence[tuple[int, int]] = (),
) -> Records:
    """Of `shared` the digests of what the topics `raw` and `derived` share, of `parts` which part each is, and of how many."""
    count = len(at)
    parts = parts or [(WHOLE, 0)] * count
    numbers: dict[str, Any] = {name: np.arange(count, dtype=np.uint64) for name in ("event", "payload", "row")}
    return Records(
        topic,
        0,
        at=np.array([code(0, offset) for offset in at], np.int64),
        source=np.array([code(0, offset) for offset in sources], np.int64),
        part=np.array([part for part, _ in parts], np.int64),
        parts=np.array([said for _, said in parts], np.int64),
        sent_ms=np.zeros(count, np.int64),
        revision=np.array(revisions, np.int64),
        key=np.array(sources, np.uint64),
        shared={"derived": np.array(shared, np.uint64).reshape(-1, 1)},
        compared=np.zeros(count, np.int8),
        wanted={},
        readable=np.ones(count, np.bool_),
        redriven=np.array(redriven, np.bool_),
        verdict=np.full(count, RIGHT, np.int16),
        **numbers,
    )


derived_records = st.lists(
    st.tuples(st.integers(0, 20), st.integers(0, 1), st.booleans(), st.booleans()), max_size=30
)  # raw offset, revision, changed, redriven


def test_what_a_record_behind_the_cut_overtook_is_out_of_order() -> None:
    of_raw = records("raw", [11], [11], [0], [11], [False])
    made = records("derived", [END, 11, END + 1], [0, 11, 0], [0] * 3, [0, 1, 2], [False] * 3)
    of_raw.key[:] = made.key[:] = 7
    letters = Made(Window("raw.dlq", {}), np.zeros(0, np.int64), np.zeros(0, np.int64))
    derivation = Derivation(
        Window("raw", {0: Span(11, 0, END, 0)}),
        [of_raw],
        Made(Window("derived", {0: Span(0, 0, 3, 0)}), made.at, made.source),
        [made],
        letters,
        np.zeros(0, np.uint64),
        np.zeros(0, np.int64),
        {0: LATEST},
        (),
        0,
    )
    assert [(each.kind, each.coordinate) for each in derivation.findings()] == [("out of order", "raw/0/11")]


def test_a_partition_that_was_added_since_the_cut_is_for_the_next_audit() -> None:
    derived = Window("derived", {0: Span(0, 0, 3, 0)})
    made = records("derived", [11, 0, 5], [11, 0, 5], [0] * 3, [0, 1, 2], [False] * 3)
    made.source[1:] = [code(1, 0), code(1, 5)]
    raw = Window("raw", {0: Span(11, 0, END, 0)})
    of_derived = Made(derived, made.at, made.source)
    derivation = Derivation(
        raw,
        [records("raw", [11], [11], [0], [11], [False])],
        of_derived,
        [made],
        Made(Window("raw.dlq", {}), np.zeros(0, np.int64), np.zeros(0, np.int64)),
        np.zeros(0, np.uint64),
        np.zeros(0, np.int64),
        {0: LATEST, 1: 3},
        (),
        0,
    )
    assert [(each.kind, each.coordinate) for each in derivation.findings()] == [("phantom", "raw/1/5")]
    assert of_derived.resume(raw) == {0: 1}


offsets = st.sets(st.integers(LOW, END - 1))


@given(
    offsets,
    derived_records,
    st.lists(st.integers(LOW, END - 1), max_size=4),
    st.sets(st.integers(LOW, END - 1)),
    st.sets(st.integers(LOW, END - 1)),
    st.sets(st.integers(LOW, END - 1)),
    st.booleans(),
    st.sampled_from(["each", "some", "by a filter"]),
    st.sets(st.integers(LOW, END - 1)),
)
def test_it_finds_what_counting_one_by_one_finds(
    raw: set[int],
    derived: list[tuple[int, int, bool, bool]],
    dead: list[int],
    purged: set[int],
    sent_back: set[int],
    unreadable: set[int],
    at_least_once: bool,
    records_promised: str,
    let_through: set[int],
) -> None:
    window = Window("raw", {0: Span(LOW, 0, END, 0)})
    sources = [source for source, *_ in derived]
    made = records(
        "derived",
        sources,
        [source + 1000 * changed for source, _, changed, _ in derived],
        [revision for _, revision, _, _ in derived],
        list(range(len(derived))),
        [redriven for *_, redriven in derived],
    )
    of_raw = records("raw", sorted(raw), sorted(raw), [0] * len(raw), sorted(raw), [False] * len(raw))
    of_raw.readable[:] = [offset not in unreadable for offset in sorted(raw)]
    if records_promised == "by a filter":
        wanted = np.array([offset in let_through - unreadable for offset in sorted(raw)], np.bool_)
        of_raw = replace(of_raw, wanted={"derived": wanted})
    here = Window("derived", {0: Span(0, 0, len(derived), 0)})
    letters = Window("raw.dlq", {0: Span(0, 0, len(dead), 0)})
    payload = {offset: number for number, offset in enumerate(sorted(raw))}
    derivation = Derivation(
        window,
        [of_raw],
        Made(here, made.at, made.source),
        [made],
        Made(letters, np.arange(len(dead), dtype=np.int64), np.array([code(0, each) for each in dead], np.int64)),
        np.array([payload.get(each, 0) for each in dead], np.uint64),
        np.array([code(0, each) for each in purged], np.int64),
        {0: LATEST},
        (),
        0,
        redriven=np.array([code(0, each) for each in sent_back], np.int64),
        at_least_once=at_least_once,
        is_filtered=records_promised != "each",
    )
    found = Counter((each.kind, each.coordinate) for each in derivation.findings())

    def named(offset: int) -> str:
        return coordinate("raw", code(0, offset))

    expected: Counter[tuple[str, str]] = Counter()
    firsts = Counter(source for source, revision, _, redriven in derived if revision == 0 and not redriven)
    for source in {source for source, revision, _, redriven in derived if revision == 0 and redriven}:
        firsts[source] = firsts[source] or 1  # what it repeats is gone
    repeats = left_out = 0
    for offset in raw:
        times = firsts[offset] + dead.count(offset)
        may_be_left_out = offset not in unreadable and (
            records_promised == "some" or (records_promised == "by a filter" and offset not in let_through)
        )
        left_out += times == 0 and may_be_left_out
        if times == 0 and not may_be_left_out and offset not in purged:
            expected["lost", named(offset)] += 1
        in_both = firsts[offset] > 0 and offset in dead
        if times > 1 and (in_both or not at_least_once):
            expected["doubled", named(offset)] += 1
        repeats += (times - 1) * (times > 1 and at_least_once and not in_both)
        repairs = sum((source, revision, redriven) == (offset, 1, False) for source, revision, _, redriven in derived)
        if repairs > 1:
            expected["doubled", named(offset)] += 1
    for source in {source for source, *_ in derived} & raw & unreadable:
        expected["phantom", named(source)] += 1
    for source in set(dead) & raw - unreadable - sent_back:
        expected["set aside", named(source)] += 1
    if records_promised == "by a filter":
        for source, *_ in derived:
            if source in raw - unreadable - let_through:
                expected["phantom", named(source)] += 1
    for source, _, changed, _ in derived:
        if LOW <= source < END and source not in raw or source >= LATEST:
            expected["phantom", named(source)] += 1
        elif source in raw - unreadable and changed:
            expected["changed", named(source)] += 1
    for source in dead:
        if source not in raw:
            expected["phantom", named(source)] += 1
    assert found == expected
    notes = derivation.tallies[0].notes
    assert notes["left out by the filter"] == left_out * (records_promised == "by a filter")
    assert notes["left out, and no filter tells whether rightly"] == left_out * (records_promised == "some")
    assert notes["came again, as at least once allows"] == repeats
    assert notes["sent again by a redrive"] == sum(redriven and source in raw for source, _, _, redriven in derived)


@given(
    offsets,
    st.lists(st.tuples(st.integers(LOW, END - 1), st.integers(0, 3), st.integers(0, 3)), max_size=20),
    st.lists(st.integers(LOW, END - 1), max_size=3),
    st.booleans(),
)
def test_of_parts_it_finds_what_counting_one_by_one_finds(
    raw: set[int], derived: list[tuple[int, int, int]], dead: list[int], at_least_once: bool
) -> None:
    """Derived records of a raw offset, part and of how many; none is of a record that there is not."""
    derived = [each for each in derived if each[0] in raw]
    dead = [each for each in dead if each in raw]
    sources = [source for source, *_ in derived]
    count = len(derived)
    made = records(
        "derived", sources, sources, [0] * count, list(range(count)), [False] * count, [each[1:] for each in derived]
    )
    of_raw = records("raw", sorted(raw), sorted(raw), [0] * len(raw), sorted(raw), [False] * len(raw))
    of_raw.readable[:] = [offset not in dead for offset in sorted(raw)]
    payload = {offset: number for number, offset in enumerate(sorted(raw))}
    derivation = Derivation(
        Window("raw", {0: Span(LOW, 0, END, 0)}),
        [of_raw],
        Made(Window("derived", {0: Span(0, 0, count, 0)}), made.at, made.source, made.part),
        [made],
        Made(
            Window("raw.dlq", {0: Span(0, 0, len(dead), 0)}),
            np.arange(len(dead), dtype=np.int64),
            np.array([code(0, each) for each in dead], np.int64),
        ),
        np.array([payload[each] for each in dead], np.uint64),
        np.zeros(0, np.int64),
        {0: LATEST},
        (),
        0,
        at_least_once=at_least_once,
        is_filtered=True,
        has_parts=True,
    )
    found = Counter((each.kind, each.coordinate) for each in derivation.findings())

    def named(offset: int) -> str:
        return coordinate("raw", code(0, offset))

    expected: Counter[tuple[str, str]] = Counter()
    for (source, part), times in Counter(each[:2] for each in derived).items():
        expected["doubled", f"{named(source)}/{part}"] += times > 1 and not at_least_once
    for offset, times in Counter(dead).items():
        expected["doubled", named(offset)] += times > 1 and not at_least_once
        expected["doubled", named(offset)] += offset in sources
        expected["phantom", named(offset)] += offset in sources  # it can't be read
    for offset in set(sources):
        said = [each[2] for each in derived if each[0] == offset]
        expected["changed", named(offset)] += sum(part >= of for source, part, of in derived if source == offset)
        if not at_least_once:
            expected["changed", named(offset)] += sum(one != other for one, other in itertools.pairwise(said))
        good = {each[1:] for each in derived if each[0] == offset and each[1] < each[2]}
        whole = [of for _, of in good if sum(other == of for _, other in good) == of]
        expected["lost", named(offset)] += bool(good) and not whole
        # Of what came again the first one: each that lies behind one with a greater part.
        parts = list(dict.fromkeys(part for source, part, _ in derived if source == offset))
        expected["out of order", named(offset)] += sum(b < a for a, b in itertools.pairwise(parts))
    assert +found == +expected

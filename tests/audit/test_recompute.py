"""The audit's own lookup in a dimension, by columns, against one in plain Python."""

from __future__ import annotations

import itertools
import math
import struct
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from services.audit.records.recompute import places_at, places_of

# Of a dimension's column, and of the event's field that is looked up in it.
KINDS = [
    (pa.string(), pa.string(), st.sampled_from(["", "a", "b", "ab"])),
    (pa.int32(), pa.int64(), st.sampled_from([-1, 0, 1, 2**31 - 1])),
    (pa.int64(), pa.int64(), st.sampled_from([0, 1, 2**40])),
    (pa.bool_(), pa.bool_(), st.booleans()),
    (pa.float64(), pa.float64(), st.sampled_from([-1.5, 0.0, 2.0])),
]


@given(st.data(), st.lists(st.sampled_from(KINDS), min_size=1, max_size=3), st.integers(1, 3))
def test_a_record_finds_the_row_that_has_all_of_its_values(data: st.DataObject, kinds: list[Any], files: int) -> None:
    values = [each for _, _, each in kinds]
    keys = data.draw(st.lists(st.tuples(*values), min_size=files, max_size=12, unique=True))
    looked_up = data.draw(st.lists(st.tuples(*[st.none() | each for each in values]), max_size=12))
    size = len(keys) // files
    starts = [*range(0, size * files, size)]
    ends = [*starts[1:], len(keys)]
    known = [
        pa.chunked_array([pa.array([key[at] for key in keys[a:b]], kind) for a, b in zip(starts, ends, strict=True)])
        for at, (kind, _, _) in enumerate(kinds)
    ]
    records = [pa.array([record[at] for record in looked_up], kind) for at, (_, kind, _) in enumerate(kinds)]
    expected = [keys.index(record) if record in keys else None for record in looked_up]
    assert places_of(records, known).to_pylist() == expected


def test_a_key_of_many_columns_and_rows_is_told_apart() -> None:
    columns = [pa.array([(number >> 2 * at) % 4 for number in range(4**6)]) for at in range(6)]
    assert places_of(columns, columns).to_pylist() == list(range(4**6))


def test_as_in_spark_a_zero_has_no_sign_and_each_nan_is_the_same() -> None:
    known = pa.array([math.nan, -0.0, 1.0])
    (other_nan,) = struct.unpack("<d", (0x7FF8000000000001).to_bytes(8, "little"))
    assert places_of([pa.array([0.0, -0.0, other_nan, None])], [known]).to_pylist() == [1, 1, 0, None]
    text = pa.array(["a", "a", "a", "a"])
    assert places_of([text, pa.array([0.0, -0.0, other_nan, None])], [text[:3], known]).to_pylist() == [1, 1, 0, None]


def test_an_empty_table_has_no_row() -> None:
    key, days = pa.array([], pa.string()), pa.array([], pa.date32())
    instants = pa.array([datetime(2013, 1, 1, tzinfo=UTC)], pa.timestamp("ms", "UTC"))
    assert places_at([pa.array(["a"])], [key], instants, days, days).to_pylist() == [None]


DAYS = [date(2013, 1, day) for day in range(1, 7)]
INSTANTS = [datetime(2013, 1, day, tzinfo=UTC) + timedelta(microseconds=by) for day in range(1, 8) for by in (-1, 0, 1)]


@st.composite
def rows_in_time(draw: st.DrawFn) -> list[tuple[str, date, date | None]]:
    """Keys, each with rows that hold one after the other, in any order."""
    rows: list[tuple[str, date, date | None]] = []
    for key in draw(st.lists(st.sampled_from("abc"), min_size=1, unique=True)):
        bounds = sorted(draw(st.sets(st.sampled_from(DAYS), min_size=2)))
        pairs = list(itertools.pairwise(bounds))
        chosen = draw(st.sets(st.sampled_from(pairs), min_size=1))
        rows += [(key, *pair) for pair in chosen]
        if draw(st.booleans()):
            rows.append((key, bounds[-1], None))
    return draw(st.permutations(rows))


@given(
    rows_in_time(),
    st.lists(st.tuples(st.sampled_from([*"abcd", None]), st.sampled_from([*INSTANTS, None])), max_size=20),
    st.sampled_from([pa.date32(), pa.timestamp("us", "UTC")]),
)
def test_a_record_finds_the_row_that_holds_at_its_time(
    rows: list[tuple[str, date, date | None]],
    records: list[tuple[str | None, datetime | None]],
    kind: pa.DataType,
) -> None:
    def at(day: date | None) -> datetime | None:
        return None if day is None else datetime(day.year, day.month, day.day, tzinfo=UTC)

    keys, begins, ends = [row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows]
    days = [pa.array([at(day) if kind != pa.date32() else day for day in column], kind) for column in (begins, ends)]
    expected = [
        next(
            (
                number
                for number, (own, since, until) in enumerate(rows)
                if instant is not None
                and own == key
                and (begin := at(since)) is not None
                and begin <= instant
                and ((end := at(until)) is None or instant < end)
            ),
            None,
        )
        for key, instant in records
    ]
    asked = pa.array([key for key, _ in records], pa.string())
    instants = pa.array([instant for _, instant in records], pa.timestamp("us", "UTC"))
    found = places_at(
        [asked], [pa.chunked_array([pa.array(keys)])], instants, *(pa.chunked_array([each]) for each in days)
    )
    assert found.to_pylist() == expected

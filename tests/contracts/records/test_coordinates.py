"""Which raw record an event goes back to."""

from __future__ import annotations

import pyarrow as pa
import pytest

from contracts.records.coordinates import Coordinate, coordinate_of
from services.audit.values.place import NOWHERE, WHOLE, code, parsed, parsed_parts

RAW, DERIVED = "hires.started.v1", "hires.started.priced.v1"


@pytest.mark.parametrize("event_id", [f"{RAW}/0/0", f"{RAW}/1/42", f"{RAW}/99999/9999999999999"])
def test_a_derived_record_goes_by_its_raw_coordinate(event_id: str) -> None:
    assert coordinate_of(RAW, DERIVED, 0, 9, event_id.encode()) == event_id
    partition, offset = event_id.split("/")[1:]
    assert Coordinate.said(RAW, partition, offset) == (found := Coordinate(RAW, int(partition), int(offset)))
    assert (str(found), found.record) == (event_id, found)
    assert parsed(RAW, pa.array([event_id])).tolist() == [code(int(partition), int(offset))]
    assert Coordinate.parse(event_id) == found
    assert Coordinate.in_event(RAW, event_id.encode()) == found


@pytest.mark.parametrize(
    "event_id",
    [
        None,
        b"",
        b"\xff\xfe",
        b"2024/11/23",
        b"hires.started.v2/0/1",
        b"hiresXstarted.v1/0/1",
        f"{RAW}/0/1/2".encode(),
        f"{RAW}/0/1\n".encode(),
        f"{RAW}/00/1".encode(),
        f"{RAW}/0/01".encode(),
        f"{RAW}/-1/1".encode(),
        f"{RAW}/0/99999999999999999999".encode(),
        f"{RAW}/100000/1".encode(),
        f"{RAW}/0/\u0661".encode(),
        f"{RAW}/²/1".encode(),
        f"{RAW}/0/{'9' * 5000}".encode(),
    ],
)
def test_another_id_is_none_so_the_record_goes_by_its_own_place(event_id: bytes | None) -> None:
    assert coordinate_of(RAW, DERIVED, 0, 9, event_id) == f"{DERIVED}/0/9"
    assert Coordinate.in_event(RAW, event_id) is None
    assert parsed(RAW, pa.array([event_id], pa.binary())).tolist() == [NOWHERE]


@pytest.mark.parametrize(
    ("partition", "offset"),
    [
        ("", "1"),
        ("00", "1"),
        ("0", "01"),
        ("-1", "1"),
        ("0", "\u0661"),
        ("0", "1_0"),
        ("0", " 1"),
        ("0/x", "2"),
        ("0", "1\n"),
    ],
)
def test_every_reader_takes_the_same_texts_for_numbers(partition: str, offset: str) -> None:
    assert Coordinate.said(RAW, partition, offset) is None
    assert Coordinate.parse(f"{RAW}/{partition}/{offset}") is None
    assert parsed(RAW, pa.array([f"{RAW}/{partition}/{offset}"])).tolist() == [NOWHERE]


def test_a_producers_own_id_that_looks_like_a_coordinate_is_none_on_a_raw_topic() -> None:
    assert coordinate_of(None, RAW, 0, 9, f"{RAW}/1/42".encode()) == f"{RAW}/0/9"


def test_a_part_of_many_goes_by_the_raw_coordinate_and_its_number() -> None:
    event_id = f"{RAW}/1/42/7"
    assert coordinate_of(RAW, DERIVED, 0, 9, event_id.encode(), parts=True) == event_id
    part = Coordinate(RAW, 1, 42, 7)
    assert Coordinate.in_event(RAW, event_id.encode(), parts=True) == Coordinate.parse(event_id) == part
    assert (str(part), str(part.record)) == (event_id, f"{RAW}/1/42")
    assert [each.tolist() for each in parsed_parts(RAW, pa.array([event_id]), parts=True)] == [[code(1, 42)], [7]]


@pytest.mark.parametrize(
    "event_id", [f"{RAW}/1/42", f"{RAW}/1/42/", f"{RAW}/1/42/07", f"{RAW}/1/42/-1", f"{RAW}/1/42/7/0"]
)
def test_where_one_becomes_many_an_id_without_a_part_is_none(event_id: str) -> None:
    assert coordinate_of(RAW, DERIVED, 0, 9, event_id.encode(), parts=True) == f"{DERIVED}/0/9"
    assert Coordinate.in_event(RAW, event_id.encode(), parts=True) is None
    assert [each.tolist() for each in parsed_parts(RAW, pa.array([event_id]), parts=True)] == [[NOWHERE], [WHOLE]]

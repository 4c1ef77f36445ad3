"""Raw records of a list beside the dead letters of its pipeline."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from services.audit.aggregates.letters import FOREVER, Letters
from services.audit.rankings.bad_records import BadRecords
from services.audit.records.window import Span, Window
from tests.audit.records_at import records_at

_END = 6
_BAD = 4
"""Of the offsets 0 to 5."""


def bad_records(
    dead: Sequence[int] = (_BAD,),
    purged: Sequence[int] = (),
    redriven: Sequence[int] = (),
    *,
    payload: int | None = None,
    has_deleted: bool = False,
) -> BadRecords:
    places = list(range(_END))
    letters = Letters(
        "raw.dlq",
        np.arange(len(dead), dtype=np.int64),
        np.array(dead, np.int64),
        np.array([abs(place) if payload is None else payload for place in dead], np.uint64),
        np.full(len(dead), FOREVER),
        has_deleted,
        1_000_000_000 if has_deleted else 0,
    )
    sent_back = np.array(redriven, np.int64)
    return BadRecords(
        Window("raw", {0: Span(0, 0, _END, 0)}),
        [records_at(places, [0] * _END, [place != _BAD for place in places], np.zeros(_END, np.uint64))],
        Window("list", {0: Span(0, 0, 9, 0)}),
        letters,
        np.array(purged, np.int64),
        sent_back,
        sent_back,
        {0: _END + 3},
    )


def found(bad: BadRecords, *, is_rebuilt: bool = False) -> set[tuple[str, str]]:
    return {(each.kind, each.coordinate) for each in bad.findings(is_rebuilt=is_rebuilt)}


def test_a_bad_record_has_a_letter_and_a_good_one_has_none() -> None:
    assert found(bad_records()) == set()
    assert found(bad_records(())) == {("lost", "raw/0/4")}
    assert found(bad_records((), has_deleted=True)) == set(), "it may have been deleted"
    assert found(bad_records((), (_BAD,))) == set()
    assert found(bad_records((_BAD, 2))) == {("set aside", "raw/0/2")}
    assert found(bad_records((_BAD, 2), redriven=(2,))) == set()


def test_letters_of_nothing_twice_or_with_other_bytes_are_found() -> None:
    assert found(bad_records((_BAD, _BAD))) == {("doubled", "raw/0/4")}
    assert found(bad_records((_BAD, _BAD)), is_rebuilt=True) == set()
    assert found(bad_records((_BAD, _END + 7))) == {("phantom", f"raw/0/{_END + 7}")}
    assert found(bad_records((_BAD, -1))) == {("phantom", "raw.dlq/0/1")}
    assert found(bad_records((_BAD,), payload=99)) == {("changed", "raw/0/4")}


def test_what_was_set_aside_is_not_counted_though_its_letter_is_gone() -> None:
    assert bad_records().not_counted.tolist() == []
    assert bad_records((_BAD, 2)).not_counted.tolist() == [2]
    assert bad_records((_BAD,), redriven=(2,)).not_counted.tolist() == [2]
    assert bad_records((_BAD,), purged=(3,)).not_counted.tolist() == [3]
    ahead = bad_records((_BAD, _END + 1))
    assert (ahead.not_counted.tolist(), ahead.ahead.tolist()) == ([], [_END + 1])

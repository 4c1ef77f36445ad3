"""A list against totals that are known: clean if it is right, and each wrong thing is found."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from services.audit.declared.rankings import Ranking
from services.audit.rankings.ranked_list import Place, RankedList
from services.audit.records.totals import Total, Totals

RANKING = Ranking.model_validate(
    {"by": ["line"], "counts": "parcels", "mean": {"of": "late", "as": "mean"}, "at_least": 2}
)
TOTALS = Totals(
    {
        ("b",): Total(2, 2, 30),
        ("a",): Total(3, 3, 45),
        ("c",): Total(1, 1, 900),
        ("d",): Total(2, 2, 3),
        (None,): Total(1, 1, 8),
    }
)
"""By mean a and b are equal; c and the one without a name have too few."""


def a_place(number: int, line: str | None, parcels: int, mean: float, **other: Any) -> Place:
    event = {"place": number, "line": line, "parcels": parcels, "mean": mean}
    return Place(f"list/0/{number}", str(number), "0a0a0a0a", 7, event | other)


LIST = [a_place(1, "a", 3, 15.0), a_place(2, "b", 2, 15.0), a_place(3, "d", 2, 1.5), a_place(4, None, 1, 8.0)]


def found(made: list[Place], totals: Totals | None = TOTALS, places: int = 4) -> set[tuple[str, str]]:
    ranked = RankedList(RANKING, "raw", "list", "place", places)
    return {(each.kind, each.coordinate) for each in ranked.findings(made, totals)}


def test_a_right_list_is_clean() -> None:
    assert found(LIST) == set()
    assert found([*LIST, a_place(5, "c", 1, 900.0)], places=5) == set()
    assert found([], Totals()) == set()


@pytest.mark.parametrize(
    ("number", "changed", "kind"),
    [
        (2, {"parcels": 1}, "lost"),
        (2, {"parcels": 3}, "doubled"),
        (2, {"parcels": None}, "changed"),
        (2, {"mean": 14.0}, "changed"),
        (2, {"line": "z"}, "phantom"),
        (2, {"place": 9}, "changed"),
    ],
)
def test_what_is_wrong_with_a_place_is_found(number: int, changed: dict[str, Any], kind: str) -> None:
    made = [
        dataclasses.replace(each, event={**(each.event or {}), **changed}) if each.key == str(number) else each
        for each in LIST
    ]
    assert (kind, f"list/0/{number}") in found(made)


def test_places_that_lack_are_lost_and_those_too_many_are_told() -> None:
    assert found(LIST[:3]) == {("lost", "list/0/3")}
    assert found([*LIST, a_place(5, "c", 1, 900.0)]) == {("phantom", "list/0/5")}
    again = dataclasses.replace(LIST[0], coordinate="list/0/99")
    assert found([*LIST, again]) == {("doubled", "list/0/99")}
    assert found([*LIST[:3], dataclasses.replace(LIST[3], event=None)]) == {
        ("phantom", "list/0/4"),
        ("lost", "list/0/4"),
    }


def test_groups_that_are_equal_or_too_few_have_their_places_too() -> None:
    swapped = [a_place(1, "b", 2, 15.0), a_place(2, "a", 3, 15.0), *LIST[2:]]
    assert found(swapped) == {("out of order", "list/0/1"), ("out of order", "list/0/2")}
    assert found([*LIST[:3], a_place(4, "c", 1, 900.0)]) == {("out of order", "list/0/4")}


def test_where_raw_records_are_gone_the_list_itself_is_looked_at() -> None:
    assert found([a_place(1, "z", 99, 0.5)], None) == set()
    assert found([dataclasses.replace(LIST[0], key="2")], None) == {("changed", "list/0/1")}


def test_the_lowest_may_come_first_and_a_count_may_decide() -> None:
    by_count = Ranking.model_validate({"by": ["line"], "counts": "parcels", "first": "lowest"})
    totals = Totals({("a",): Total(3), ("b",): Total(1), ("c",): Total(2)})
    made = [a_place(number, line, count, 0.0) for number, (line, count) in enumerate([("b", 1), ("c", 2), ("a", 3)], 1)]
    ranked = RankedList(by_count, "raw", "list", "place", 3)
    assert list(ranked.findings(made, totals)) == []
    assert [each.kind for each in ranked.findings(made[::-1], totals)] == []


def test_totals_are_kept_and_taken_away() -> None:
    assert Totals.of_saved(TOTALS.rows()) == TOTALS
    less = Totals.joined([TOTALS, {("e",): Total(1, 1, 5)}]).minus({("e",): Total(1, 1, 5), ("a",): Total(1, 1, 15)})
    assert less == TOTALS | {("a",): Total(2, 2, 30)}
    assert Total(2, 0, 0).mean is None


def test_sums_that_a_double_does_not_hold_are_not_compared() -> None:
    made = [a_place(1, "a", 2, 0.0)]
    assert found(made, Totals({("a",): Total(2, 2, 1 << 53)}), 1) == {("changed", "list/0/1")}
    assert found(made, Totals({("a",): Total(2, 2, (1 << 53) + 1)}), 1) == set()

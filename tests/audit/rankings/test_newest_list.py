"""Which records are the newest list, where a redrive has sent older ones again."""

from __future__ import annotations

import dataclasses

from services.audit.rankings.newest_list import told_apart
from services.audit.rankings.ranked_list import Place


def a_batch(number: int, first: int, places: int = 2) -> list[Place]:
    """Of a run, from this offset on."""
    return [Place(f"list/0/{first + at}", str(at), "0a0a0a0a", number, {}) for at in range(places)]


def again(place: Place, offset: int) -> Place:
    """As a redrive sends it."""
    return dataclasses.replace(place, coordinate=f"list/0/{offset}", is_redriven=True)


OLD, NEW = a_batch(3, 0), a_batch(9, 4)


def test_the_newest_list_is_that_of_the_last_batch() -> None:
    assert told_apart([]) == ([], [])
    assert told_apart([*OLD, *NEW]) == (NEW, [])
    nameless = Place("list/0/8", "0", "", -1, {})
    assert told_apart([*NEW, nameless]) == ([*NEW, nameless], [])


def test_an_older_record_that_was_sent_again_is_not_of_it_though_readers_take_it() -> None:
    old = again(OLD[1], 8)
    assert told_apart([*OLD, *NEW, old]) == (NEW, [old])
    assert told_apart([*OLD, *NEW, again(OLD[1], 7), old]) == (NEW, [old]), "it alone is the newest of its place"
    assert told_apart([NEW[0], old]) == ([NEW[0]], [old]), "compaction has removed the others"
    assert told_apart([*OLD, again(OLD[1], 2), *NEW]) == (NEW, []), "a batch has put it right"


def test_one_of_the_newest_list_that_was_sent_again_is_as_good_as_the_first_one() -> None:
    same = again(NEW[1], 8)
    assert told_apart([*OLD, *NEW, same]) == (NEW, [])
    assert told_apart([*OLD, NEW[0], same]) == ([NEW[0], same], []), "compaction has removed the first one"
    assert told_apart([same]) == ([same], [])

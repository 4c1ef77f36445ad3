"""Which dead letters are meant, which may go back, and how they are counted."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from contracts.dead_letters.ledger import Ledger, settled
from contracts.dead_letters.letter import DeadLetter
from contracts.dead_letters.selection import Home, Selection, Verdict, judge
from contracts.dead_letters.summary import Summary, state_of
from contracts.events import Settlement
from contracts.records.limits import ADDED_BYTES, RAW_BYTES
from tests.dead_letters.letters import a_letter, a_stump

NOW = datetime(2026, 3, 2, tzinfo=UTC)
AT = datetime.fromtimestamp(1_700_000_000, UTC)
LARGEST = b"x" * (RAW_BYTES - len(b"key"))
SECOND = timedelta(seconds=1)
HOMES = {"parcels.dispatched.v1": Home(2, RAW_BYTES)}


@pytest.mark.parametrize(
    ("selection", "taken"),
    [
        (Selection(), True),
        (Selection(reason="UnknownSchemaId"), True),
        (Selection(reason="EmptyBody"), False),
        (Selection(since=AT, until=AT + SECOND), True),
        (Selection(until=AT), False),
        (Selection(since=AT + SECOND), False),
        (Selection(coordinate="parcels.dispatched.v1.dlq/0/7"), True),
        (Selection(coordinate="parcels.dispatched.v1/1/42"), True),
        (Selection(coordinate="parcels.dispatched.v1/1/4"), False),
    ],
)
def test_a_letter_is_meant_when_all_filters_say_so(selection: Selection, taken: bool) -> None:
    assert selection.takes(a_letter()) is taken


def test_a_letter_without_time_is_outside_of_every_range() -> None:
    assert Selection().takes(a_letter(timestamp_ms=None))
    assert not Selection(since=AT).takes(a_letter(timestamp_ms=None))
    assert not Selection(since=AT).takes(a_letter(timestamp_ms=2**62))


@pytest.mark.parametrize(
    ("letter", "verdict"),
    [
        (a_letter(), Verdict.REDRIVE),
        (a_letter(coordinate=None), Verdict.NO_RECORD),
        (a_letter(coordinate="parcels.dispatched.v1/2/0"), Verdict.NO_TOPIC),
        (a_letter(coordinate="__consumer_offsets/0/0"), Verdict.NO_TOPIC),
        (a_letter(redriven_from="parcels.dispatched.v1.dlq/0/3"), Verdict.FAILED_AGAIN),
        (a_letter(value=LARGEST), Verdict.REDRIVE),
        (a_letter(value=LARGEST + b"x"), Verdict.TOO_LONG),
        (a_letter(value=LARGEST, redriven_from="parcels.dispatched.v1.dlq/0/3"), Verdict.FAILED_AGAIN),
        (a_letter(original=[("x", b"h" * ADDED_BYTES)], value=LARGEST), Verdict.TOO_LONG),
        (a_stump(), Verdict.TOO_LONG),
    ],
    ids=range(10),
)
def test_a_letter_goes_back_where_its_record_came_from_or_stays(letter: DeadLetter, verdict: Verdict) -> None:
    assert judge(letter, Ledger(), HOMES, again=False) is verdict


def test_what_failed_again_goes_back_when_told_so() -> None:
    letter = a_letter(redriven_from="parcels.dispatched.v1.dlq/0/3")
    assert judge(letter, Ledger(), HOMES, again=True) is Verdict.REDRIVE


def test_a_record_with_two_letters_goes_back_once() -> None:
    of_live, of_lake = a_letter(), a_letter(offset=8)
    ledger = Ledger([settled(of_live, Settlement.redriven, NOW)])
    assert judge(of_live, ledger, HOMES, again=True) is Verdict.REDRIVEN
    assert judge(of_lake, ledger, HOMES, again=True) is Verdict.REDRIVEN
    assert judge(a_letter(offset=8, coordinate="parcels.dispatched.v1/1/43"), ledger, HOMES, again=True) is (
        Verdict.REDRIVE
    )


def test_another_value_at_the_same_coordinate_is_another_letter() -> None:
    """The topic was made anew, and the ledger was not."""
    ledger = Ledger([settled(a_letter(), Settlement.redriven, NOW), settled(a_letter(), Settlement.purged, NOW)])
    assert judge(a_letter(value=b"other"), ledger, HOMES, again=False) is Verdict.REDRIVE


def test_what_is_being_purged_does_not_go_back() -> None:
    ledger = Ledger([settled(a_letter(), Settlement.purged, NOW)])
    assert judge(a_letter(), ledger, HOMES, again=True) is Verdict.PURGED


def test_letters_are_counted_by_topic_reason_and_state() -> None:
    first, second = a_letter(), a_letter(offset=8, coordinate="parcels.dispatched.v1/1/43")
    failed = a_letter(offset=9, coordinate="parcels.dispatched.v1/1/99", redriven_from=first.coordinate)
    ledger, summary = Ledger([settled(first, Settlement.redriven, NOW)]), Summary(limit=2)
    for letter in (first, second, failed, a_letter(reason="EmptyBody", timestamp_ms=1_600_000_000_000)):
        summary.add(letter, ledger)
    frequent, rare = summary.counts()
    assert (frequent.reason, frequent.letters, frequent.states) == (
        "UnknownSchemaId",
        3,
        {"redriven": 1, "open": 1, "failed again": 1},
    )
    assert (rare.reason, rare.letters, rare.newest) == ("EmptyBody", 1, datetime.fromtimestamp(1_600_000_000, UTC))
    assert [letter.offset for letter, _ in summary.newest()] == [9, 8]
    assert state_of(first, ledger) == "redriven"

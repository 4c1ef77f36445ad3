"""What was done to a record's headers on its way to the dead letters is undone on its way back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from contracts.records.dead_letter_headers import CAUSE, dead_letter_headers, original_headers
from tests.dead_letters.letters import a_letter, stored

COORDINATE = "parcels.dispatched.v1/1/42"
NAMES = st.one_of(st.sampled_from(["ce_id", "ce_causationid", "__connect.errors.topic", "odd"]), st.text())


@given(st.lists(st.tuples(NAMES.filter(lambda name: name != CAUSE), st.none() | st.binary(max_size=9))))
def test_a_records_headers_come_back_as_they_were(original: list[tuple[str, bytes | None]]) -> None:
    added = dead_letter_headers(original, "parcels.dispatched.v1", "dispatches_enriched", "S", "R", "e", COORDINATE)
    assert original_headers(stored(added), COORDINATE) == original


def test_of_a_strangers_dead_letter_what_connect_added_goes() -> None:
    headers = [
        ("trace", b"t"),
        ("__connect.errors.topic", b"parcels.dispatched.v1"),
        ("__connect.errors.offset", b"42"),
    ]
    assert original_headers(headers, COORDINATE) == [("trace", b"t")]


def test_what_the_record_itself_claims_about_errors_is_not_believed() -> None:
    claims: list[tuple[str, bytes | None]] = [
        ("__connect.errors.topic", b"elsewhere"),
        ("__connect.errors.offset", b"9"),
    ]
    letter = a_letter(original=claims)
    assert str(letter.origin) == COORDINATE
    assert letter.original_headers() == claims


def test_nonsense_in_headers_is_no_origin() -> None:
    for offset in (b"", b"-1", b"042", b"x", "\u0663".encode(), b"\xff", b"9" * 30, None):
        headers = (
            ("__connect.errors.topic", b"parcels.dispatched.v1"),
            ("__connect.errors.partition", b"0"),
            ("__connect.errors.offset", offset),
        )
        assert a_letter(headers=headers).origin is None

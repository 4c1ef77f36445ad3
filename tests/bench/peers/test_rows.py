"""Rows that are missing, doubled, changed or made up are named before any time counts."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping

from contracts.definitions.catalog import load_catalog
from tests.bench.peers.rows import FIELDS, LEFT_OUT, Row, differences, row_of

FLIGHTS = ("UA1-EWR", "UA2-EWR", "UA3-EWR")


def a_row(flight: str, **changed: object) -> Row:
    return row_of(flight, {"flight_id": flight, "carrier": "UA", "plane_model": None, **changed})


def the_rows(counts: Mapping[str, int] | None = None) -> Counter[Row]:
    """Each flight once, except those named."""
    return Counter({a_row(flight): (counts or {}).get(flight, 1) for flight in FLIGHTS})


def test_the_same_rows_differ_in_nothing() -> None:
    assert differences(the_rows(), the_rows()) == []
    assert differences(the_rows({"UA2-EWR": 3}), the_rows({"UA2-EWR": 3})) == []


def test_a_missing_row_is_named() -> None:
    written = the_rows()
    del written[a_row("UA2-EWR")]
    assert differences(the_rows(), written) == ["UA2-EWR: 1 missing"]


def test_a_row_that_is_there_too_seldom_is_named() -> None:
    assert differences(the_rows({"UA2-EWR": 3}), the_rows()) == ["UA2-EWR: 2 missing"]


def test_a_doubled_row_is_named() -> None:
    assert differences(the_rows(), the_rows({"UA3-EWR": 2})) == ["UA3-EWR: 1 too many"]


def test_a_differing_row_is_named_with_the_field() -> None:
    written = the_rows() - Counter([a_row("UA1-EWR")]) + Counter([a_row("UA1-EWR", plane_model="A320")])
    assert differences(the_rows(), written) == ["UA1-EWR: plane_model is 'A320', not None"]


def test_a_row_that_differs_here_and_is_right_there_is_named() -> None:
    written = the_rows() + Counter([a_row("UA1-EWR", plane_model="A320")])
    assert differences(the_rows({"UA1-EWR": 2}), written) == ["UA1-EWR: plane_model is 'A320', not None"]


def test_two_wrong_rows_of_one_flight_are_both_named() -> None:
    written = the_rows() + Counter([a_row("UA1-EWR", plane_model="A320"), a_row("UA1-EWR", carrier="AA")])
    assert len(differences(the_rows(), written)) == 2


def test_a_row_under_another_key_is_named() -> None:
    wrong = row_of("UA9-EWR", {"flight_id": "UA1-EWR", "carrier": "UA"})
    written = the_rows() - Counter([a_row("UA1-EWR")]) + Counter([wrong])
    assert differences(the_rows(), written) == ["UA1-EWR: 1 missing", "UA9-EWR: 1 too many"]


def test_only_the_first_differences_are_listed() -> None:
    assert differences(the_rows(), Counter(), limit=2) == ["UA1-EWR: 1 missing", "UA2-EWR: 1 missing", "and 1 more"]


def test_every_field_is_compared_but_those_that_no_peer_writes() -> None:
    assert {"flight_id", "departed_at", "plane_engine_type"} <= set(FIELDS)
    enriched = json.loads(load_catalog().schema("flights.departed.enriched.v1"))["fields"]
    assert sorted([*FIELDS, *LEFT_OUT]) == sorted(field["name"] for field in enriched)

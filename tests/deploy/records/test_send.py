"""What `headrace send` takes for an event, without a broker."""

from __future__ import annotations

import pytest

from contracts import topics
from contracts.definitions.catalog import load_catalog
from deploy.errors import DeployError
from deploy.records.send import handle_of, read_events

CATALOG = load_catalog()
EXAMPLE = (CATALOG.root / "examples" / "flights.departed.v1" / "left_late.json").read_text().replace("\n", " ")


def test_a_line_is_an_event_and_the_same_line_the_same_event() -> None:
    (first_id, first), (second_id, _) = read_events(topics.FLIGHTS_DEPARTED, [EXAMPLE, "  ", EXAMPLE + "\n"])
    assert isinstance(first, topics.FLIGHTS_DEPARTED.model)
    assert first_id == second_id


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("{", r"line 2 is no event of flights\.departed\.v1: line: Invalid JSON"),
        (EXAMPLE.replace("1400", '"far"'), "line 2 .*: distance_miles: Input should be a valid integer"),
        (EXAMPLE.replace('"carrier"', '"carier"'), "carrier: Field required; carier: Extra inputs are not permitted"),
    ],
)
def test_a_line_that_is_none_is_named_with_what_is_wrong(line: str, why: str) -> None:
    with pytest.raises(DeployError, match=why):
        list(read_events(topics.FLIGHTS_DEPARTED, [EXAMPLE, line]))


def test_only_a_topic_that_is_not_derived_takes_events() -> None:
    assert handle_of(CATALOG, "flights.departed.v1") is topics.FLIGHTS_DEPARTED
    with pytest.raises(DeployError, match="is derived from flights.departed.v1: send events to that one"):
        handle_of(CATALOG, "flights.departed.enriched.v1")
    with pytest.raises(DeployError, match="There is no contract of a topic mine; there are airports.served.v1, alerts"):
        handle_of(CATALOG, "mine")

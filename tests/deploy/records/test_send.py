"""What `headrace send` takes for an event, without a broker."""

from __future__ import annotations

import pytest

from deploy.errors import DeployError
from deploy.records.send import handle_of, read_events
from tests import sample
from tests.sample import topics

CATALOG = sample.catalog()
EXAMPLE = (CATALOG.root / "examples" / "parcels.dispatched.v1" / "left_late.json").read_text().replace("\n", " ")


def test_a_line_is_an_event_and_the_same_line_the_same_event() -> None:
    (first_id, first), (second_id, _) = read_events(topics.PARCELS_DISPATCHED, [EXAMPLE, "  ", EXAMPLE + "\n"])
    assert isinstance(first, topics.PARCELS_DISPATCHED.model)
    assert first_id == second_id


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("{", r"line 2 is no event of parcels\.dispatched\.v1: line: Invalid JSON"),
        (EXAMPLE.replace("1400", '"far"'), "line 2 .*: weight_grams: Input should be a valid integer"),
        (EXAMPLE.replace('"courier"', '"carier"'), "courier: Field required; carier: Extra inputs are not permitted"),
    ],
)
def test_a_line_that_is_none_is_named_with_what_is_wrong(line: str, why: str) -> None:
    with pytest.raises(DeployError, match=why):
        list(read_events(topics.PARCELS_DISPATCHED, [EXAMPLE, line]))


def test_only_a_topic_that_is_not_derived_takes_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deploy.records.send.topics", topics)
    assert handle_of(CATALOG, "parcels.dispatched.v1") is topics.PARCELS_DISPATCHED
    with pytest.raises(DeployError, match="is derived from parcels.dispatched.v1: send events to that one"):
        handle_of(CATALOG, "parcels.dispatched.enriched.v1")
    with pytest.raises(
        DeployError, match="There is no contract of a topic mine; there are alerts.raised.v1, deadletters"
    ):
        handle_of(CATALOG, "mine")

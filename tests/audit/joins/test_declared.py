"""What the file says of joins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from services.audit.declared.joins import load_joins
from services.audit.errors import CouldNotAudit
from tests import sample

TRIPS = "parcels.dispatched.trips.v1"


def test_the_file_tells_of_every_join() -> None:
    catalog = sample.catalog()
    found = load_joins(sample.JOINS, catalog)
    assert found.keys() == {topic.name for topic in catalog.topics.values() if topic.is_join}


def test_a_list_of_fields_has_their_names_on_both_sides_and_a_map_others(tmp_path: Path) -> None:
    join = load_joins(_file(tmp_path, {"second": {"fields": {"delivered_at": "expected_at"}}}), sample.catalog())[TRIPS]
    assert (join.first.by_joined, join.second.by_joined) == ({"courier": "courier"}, {"delivered_at": "expected_at"})
    assert join.fields == ("courier", "delivered_at")
    assert [join.brings(side).carried for side in (0, 1)] == [{"courier": "courier"}, {"delivered_at": "expected_at"}]
    assert [join.brings(side).by for side in (0, 1)] == [{"parcel_id": "parcel_id"}] * 2


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"how": "full_outer"}, "how: Input should be 'inner' or 'left_outer'"),
        ({"equal": {}}, "equal: Dictionary should have at least 1 item"),
        (
            {"equal": {"parcel_id": "delivered_at"}},
            "equal: parcel_id of parcels.dispatched.v1 and delivered_at of parcels.delivered.v1 must be of one type, not ",
        ),
        ({"equal": {"gate": "gate"}}, "must be of one type, not none and none"),
        ({"apart": {"least_minutes": 1, "most_minutes": 0}}, "least_minutes is more than most_minutes"),
        ({"first": {"fields": ["delivered_at"]}}, "fields: delivered_at can't come of both topics"),
        (
            {"first": {"fields": {"courier": "late_minutes"}}},
            f"first: fields: courier of {TRIPS} and late_minutes of parcels.dispatched.v1 must be of one type, not ",
        ),
        ({"second": {"fields": ["van_id"]}}, f"second: fields: van_id of {TRIPS} and van_id of parcels.delivered.v1"),
        ({"first": {"fields": [], "where": "courier =="}}, "first: where: courier ==: "),
        ({"second": {"fields": [], "where": "gate > 1"}}, "second: where: parcels.delivered.v1 has no field gate"),
        ({"topic": "parcels.dispatched.v1"}, "parcels.dispatched.v1 is no join"),
        ({"topic": "nothing.known.v1"}, "no contract for topic 'nothing.known.v1'"),
        ({"wher": ""}, "wher: Extra inputs are not permitted"),
    ],
)
def test_a_wrong_joins_file_is_refused_with_its_name(changes: dict[str, Any], problem: str, tmp_path: Path) -> None:
    path = _file(tmp_path, changes)
    with pytest.raises(CouldNotAudit) as raised:
        load_joins(path, sample.catalog())
    assert str(raised.value).startswith(f"{path}: ")
    assert problem in str(raised.value)


def _file(folder: Path, changes: dict[str, Any]) -> Path:
    said: dict[str, Any] = {
        "how": "inner",
        "equal": {"parcel_id": "parcel_id"},
        "apart": {"least_minutes": 0, "most_minutes": 60},
        "first": {"fields": ["courier"]},
        "second": {"fields": ["delivered_at"]},
    }
    said |= changes
    path = folder / "joins.yaml"
    path.write_text(yaml.safe_dump({said.pop("topic", TRIPS): said}))
    return path

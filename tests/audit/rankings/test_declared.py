"""What the file says of lists."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from services.audit.declared.rankings import load_rankings
from services.audit.errors import CouldNotAudit
from tests import sample

SLOWEST = "parcels.dispatched.slowest.v1"


def test_the_file_tells_of_every_list() -> None:
    catalog = sample.catalog()
    found = load_rankings(sample.RANKINGS, catalog)
    assert found.keys() == {topic.name for topic in catalog.topics.values() if topic.is_ranking}
    assert found[SLOWEST].fields == ("origin", "destination", "dispatches", "late_mean_minutes")


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"by": []}, "by: Tuple should have at least 1 item"),
        ({"by": ["dispatched_at"]}, "by dispatched_at: parcels.dispatched.v1 and "),
        ({"by": ["courier"]}, f"by courier: parcels.dispatched.v1 and {SLOWEST} must both have it, a text"),
        ({"counts": "origin"}, f"counts: origin of {SLOWEST} must be an int or a long, not string"),
        (
            {"mean": {"of": "origin", "as": "late_mean_minutes"}},
            "mean: of: origin of parcels.dispatched.v1 must be an int",
        ),
        ({"mean": {"of": "late_minutes", "as": "dispatches"}}, f"mean: as: dispatches of {SLOWEST} must be a double"),
        ({"first": "worst"}, "first: Input should be 'highest' or 'lowest'"),
        ({"at_least": 0}, "at_least: Input should be greater than 0"),
        ({"where": "gate > 1"}, "where: parcels.dispatched.v1 has no field gate"),
        ({"topic": "parcels.dispatched.v1"}, "parcels.dispatched.v1 is no ranking"),
        ({"topic": "nothing.known.v1"}, "no contract for topic 'nothing.known.v1'"),
        ({"wher": ""}, "wher: Extra inputs are not permitted"),
    ],
)
def test_a_wrong_rankings_file_is_refused_with_its_name(changes: dict[str, Any], problem: str, tmp_path: Path) -> None:
    said: dict[str, Any] = yaml.safe_load(sample.RANKINGS.read_text())[SLOWEST] | changes
    path = tmp_path / "rankings.yaml"
    path.write_text(yaml.safe_dump({said.pop("topic", SLOWEST): said}))
    with pytest.raises(CouldNotAudit) as raised:
        load_rankings(path, sample.catalog())
    assert str(raised.value).startswith(f"{path}: ")
    assert problem in str(raised.value)

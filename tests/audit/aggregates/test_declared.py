"""What the file says of aggregates, and late records of windows."""

from __future__ import annotations

from pathlib import Path

import pytest

from contracts.definitions.pipelines import pipeline_files
from contracts.records.missed_windows import MissedWindows, missed_windows_headers
from services.audit.aggregates.letters import FOREVER
from services.audit.counting import _over
from services.audit.declared.aggregates import load_aggregates
from services.audit.errors import CouldNotAudit
from tests import sample
from tests.sample.pipelines import load


def test_a_late_record_tells_which_windows_are_over() -> None:
    said = [f"1970-01-01T00:{minute}:00.000001Z" for minute in ("00", "01", "02")]
    missed = MissedWindows.of(missed_windows_headers(*said))
    assert missed is not None
    assert (_over(missed), _over(None)) == (60_000_001, FOREVER)


def test_the_file_tells_of_every_aggregate_what_its_pipeline_does() -> None:
    catalog = sample.catalog()
    pipelines = {target: each for each in map(load, pipeline_files(sample.PIPELINES)) for target in each.targets}
    found = load_aggregates(sample.AGGREGATES, catalog)
    assert found.keys() == {topic.name for topic in catalog.topics.values() if topic.is_aggregate}
    assert {name: each.output for name, each in found.items()} == {name: pipelines[name].output for name in found}


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        (
            {"topic": "parcels.dispatched.v1"},
            "parcels.dispatched.v1 is no aggregate: its contract does not say that a record",
        ),
        ({"topic": "nothing.known.v1"}, "no contract for topic 'nothing.known.v1'"),
        ({"of": "due_at"}, "of: due_at is not dispatched_at, the time of the events by"),
        ({"begins": "origin"}, "origin of parcels.dispatched.delays.v1 must be an instant, not string"),
        ({"ends": "gone"}, "gone of parcels.dispatched.delays.v1 must be an instant, not none"),
        (
            {"by": "[courier]"},
            "by courier: parcels.dispatched.v1 and parcels.dispatched.delays.v1 must both have it, of one type",
        ),
        ({"by": "origin"}, "by: Input should be a valid tuple"),
        ({"counts": "origin"}, "counts: origin of parcels.dispatched.delays.v1 must be an int or a long, not string"),
        ({"where": "origin =="}, "where: origin ==: "),
        ({"where": "gate > 1"}, "where: parcels.dispatched.v1 has no field gate"),
        ({"gap": "{minutes: 0}", "output": "append"}, "gap.minutes: Input should be greater than 0"),
        ({"gap": "{minutes: 30}"}, "gap: sessions are written when they are over, so output: append"),
        ({"gap": "{minutes: 30, by: origin}", "output": "append"}, "by names the field whose values stand in of"),
        (
            {"gap": "{minutes: 30, by: origin, of: {EST: 0}}", "output": "append"},
            "of: a gap has minutes",
        ),
        (
            {"gap": "{minutes: 30, by: late_minutes, of: {EST: 5}}", "output": "append"},
            "gap: by: late_minutes of parcels.dispatched.v1 must be a string",
        ),
        ({"outputs": "append"}, "outputs: Extra inputs are not permitted"),
    ],
)
def test_a_wrong_aggregates_file_is_refused_with_its_name(
    changes: dict[str, str], problem: str, tmp_path: Path
) -> None:
    said = {"topic": "parcels.dispatched.delays.v1", "of": "dispatched_at", "begins": "begins_at", "ends": "ends_at"}
    said |= {"by": "[origin]", "counts": "dispatches"} | changes
    topic, *bounds = (said.pop(name) for name in ("topic", "of", "begins", "ends"))
    gap = f", gap: {said.pop('gap')}" if "gap" in said else ""
    window = "  window: {{of: {}, begins: {}, ends: {}{}}}\n".format(*bounds, gap)
    path = tmp_path / "aggregates.yaml"
    path.write_text(f"{topic}:\n{window}" + "".join(f"  {name}: {text}\n" for name, text in said.items()))
    with pytest.raises(CouldNotAudit) as raised:
        load_aggregates(path, sample.catalog())
    assert str(raised.value).startswith(f"{path}: ")
    assert problem in str(raised.value)

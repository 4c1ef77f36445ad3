"""`headrace audit` before there is anything to audit; and what it prints of a record's own words."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from contracts.definitions.catalog import Catalog, load_catalog
from contracts.definitions.pipelines import pipeline_files
from deploy.cli import app
from deploy.local.servers.stack import LocalStack
from services.alerting.rules.condition import Condition
from services.audit.cut import Cut
from services.audit.declared.filters import load_filters, wanted
from services.audit.declared.lookups import load_lookups
from services.audit.errors import CouldNotAudit
from services.audit.report import Report
from services.audit.settings import AuditSettings
from services.audit.sources.broker import Broker
from services.audit.state import Audited, State
from services.audit.values.finding import Finding
from spark.pipeline import Pipeline
from spark.pipelines import load
from tests import sample
from tests.alerting.test_from_record_to_alert import READINGS, a_reading, a_station
from tests.alerting.worker import publish_readings, settings_of
from tests.sample.pipelines import load as load_of_sample


def test_without_a_stack_there_is_no_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HEADRACE_KAFKA__BOOTSTRAP_SERVERS", raising=False)
    result = CliRunner().invoke(app, ["audit", "--dir", str(tmp_path)])
    assert (result.exit_code, result.output.partition(":")[0]) == (2, "no verdict")


def test_a_record_gives_the_terminal_no_orders() -> None:
    report = Report("now", None, 0.1, [], [Finding("phantom", "hop", "t/0", "\x1b[2Jt/0/1", "made up")])
    assert [line for line in report.lines() if "\x1b" in line] == []


def test_the_first_findings_are_printed_and_all_are_in_the_json() -> None:
    findings = [Finding("lost", "hop", "t/0", f"t/0/{number}", "gone") for number in range(50)]
    report = Report("now", None, 0.1, [], findings)
    assert sum(line.startswith("lost: ") for line in report.lines()) == 20
    assert "… and 30 more: --json lists them all" in report.lines()
    assert len(report.json()["findings"]) == 50


@pytest.mark.parametrize(
    ("catalog", "settings", "pipelines"),
    [
        pytest.param(load_catalog(), AuditSettings(), [load(name) for name in pipeline_files()], id="the tree"),
        pytest.param(
            sample.catalog(),
            AuditSettings(lookups_file=sample.LOOKUPS, filters_file=sample.FILTERS),
            [load_of_sample(name) for name in pipeline_files(sample.PIPELINES)],
            id="the sample",
        ),
    ],
)
def test_the_lookups_and_filters_that_are_told_are_those_of_the_pipelines(
    catalog: Catalog, settings: AuditSettings, pipelines: list[Pipeline]
) -> None:
    found = load_lookups(settings.lookups_file, catalog)
    made = {target: each for each in pipelines for target in each.targets}
    said = {
        topic: [(join.name, join.dimension, join.by, join.fields) for join in each.lookups.joins]
        for topic, each in found.items()
    }
    assert said == {
        topic: [(lookup.name, lookup.dimension, lookup.by, lookup.fields) for lookup in each.lookups]
        for topic, each in made.items()
        if each.lookups
    }
    some = {topic.name for topic in catalog.topics.values() if topic.is_filtered}
    assert load_filters(settings.filters_file, catalog).keys() == some


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (
            "parcels.dispatched.enriched.v1: weight_grams > 0",
            "has no filter: its contract does not say that it is made of some",
        ),
        ("parcels.dispatched.heavy.v1: weight_grams >", "parcels.dispatched.heavy.v1: weight_grams >: "),
        ("parcels.dispatched.heavy.v1: distance > 0", "parcels.dispatched.v1 has no field distance"),
        ("parcels.dispatched.heavy.v1: [1]", "parcels.dispatched.heavy.v1: Input should be a valid string"),
        ("nothing.known.v1: a > 0", "no contract for topic"),
        ("[}", ":1: not readable as YAML: did not find expected"),
    ],
)
def test_a_wrong_filters_file_is_refused_with_its_name(content: str, problem: str, tmp_path: Path) -> None:
    _is_refused(tmp_path / "filters.yaml", content, problem, load_filters)


def test_a_filter_does_not_hold_for_a_null_or_where_it_has_no_answer() -> None:
    columns = {"a": pa.array([1, 5, None]), "b": pa.array([0, 1, 1])}
    assert wanted(Condition("a > 2"), columns, 3).tolist() == [False, True, False]
    assert wanted(Condition("a / b > 2"), columns, 3).tolist() == [False, True, False]
    assert wanted(Condition("a"), columns, 3).tolist() == [False, False, False]
    assert wanted(Condition("a != 5"), columns, 3).tolist() == [True, False, True], "of a null it holds, as in CEL"
    assert Condition("[1, 2].exists(x, x == a)").fields == ("a",)
    assert wanted(Condition("1 > 0"), columns, 3).tolist() == [True, True, True]


def _by(by: str) -> str:
    join = f"{{name: mine, dimension: couriers, by: {by}, fields: {{courier_name: name}}}}"
    return f"parcels.dispatched.enriched.v1: {{versions: dimension_versions, unmatched: unmatched, joins: [{join}]}}"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("parcels.dispatched.v1: {joins: []}", "versions: Field required"),
        ("nothing.known.v1: {versions: a, unmatched: b, joins: []}", "no contract for topic"),
        ("parcels.dispatched.v1: {versions: a, unmatched: b, joins: []}", "parcels.dispatched.v1 has no field b"),
        (
            _by("[courier, origin]"),
            "couriers has the key courier, mine looks up by courier, origin: name one field for",
        ),
        (_by("[gate]"), "parcels.dispatched.enriched.v1 has no field gate"),
        (
            _by("weight_grams"),
            "weight_grams of parcels.dispatched.enriched.v1 is int64, the key column courier of cou",
        ),
        (_by("{a: b}"), "joins.0.by.str: Input should be a valid string"),
        ("[}", ":1: not readable as YAML: did not find expected"),
        ("a: 1\nb: 2013-02-30", ":2: not readable as YAML: a value that is no timestamp"),
    ],
)
def test_a_wrong_lookups_file_is_refused_with_its_name(content: str, problem: str, tmp_path: Path) -> None:
    _is_refused(tmp_path / "lookups.yaml", content, problem, load_lookups)


def _is_refused(path: Path, content: str, problem: str, load_file: Callable[[Path, Catalog], object]) -> None:
    path.write_text(content)
    with pytest.raises(CouldNotAudit) as raised:
        load_file(path, sample.catalog())
    assert str(raised.value).startswith(f"{path}:")
    assert problem in str(raised.value)


def test_a_topic_that_brokers_have_cut_since_the_last_clean_audit_is_not_called_audited(stack: LocalStack) -> None:
    """Other records may lie where the audited ones were: what ends before them now is as if its last records were gone."""
    publish_readings(stack, [a_reading(a_station())])
    broker = Broker(settings_of(stack).kafka.client_config())
    ends, topic_id = broker.ends(READINGS), broker.topic_id(READINGS)
    assert topic_id is not None

    def cut(more: int) -> Cut:
        before = Audited(topic_id=topic_id, ends={partition: end + more for partition, end in ends.items()})
        return Cut(broker, State(at="2013-01-01T00:00:00.000Z", topics={READINGS: before}), 1, lambda _: None)

    with pytest.raises(
        CouldNotAudit, match=rf"{READINGS}/0 ended at .* at the last clean audit, and ends at .*: run with --full"
    ):
        cut(1).window(READINGS)
    assert {p: span.end for p, span in cut(0).window(READINGS).spans.items()} == ends

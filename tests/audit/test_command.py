"""`headrace audit` before there is anything to audit; and what it prints of a record's own words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from contracts.catalog import load_catalog
from deploy.cli import app
from services.audit.errors import CouldNotAudit
from services.audit.finding import Finding
from services.audit.lookups import load_lookups
from services.audit.report import Report
from services.audit.settings import AuditSettings


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


def test_the_shipped_lookups_tell_every_field_that_is_looked_up() -> None:
    catalog = load_catalog()
    (lookups,) = load_lookups(AuditSettings().lookups_file, catalog).values()
    raw, enriched = (
        {field["name"] for field in json.loads(catalog.schema(topic))["fields"]}
        for topic in ("flights.departed.v1", "flights.departed.enriched.v1")
    )
    assert set(lookups.lookups.fields) == enriched - raw - {"dimension_versions", "revision"}


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("flights.departed.v1: {joins: []}", "versions: Field required"),
        ("nothing.known.v1: {versions: a, unmatched: b, joins: []}", "no contract for topic"),
        ("flights.departed.v1: {versions: a, unmatched: b, joins: []}", "flights.departed.v1 has no field b"),
        ("[}", ":1: not readable as YAML: did not find expected"),
        ("a: 1\nb: 2013-02-30", ":2: not readable as YAML: a value that is no timestamp"),
    ],
)
def test_a_wrong_lookups_file_is_refused_with_its_name(content: str, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "lookups.yaml"
    path.write_text(content)
    with pytest.raises(CouldNotAudit) as raised:
        load_lookups(path, load_catalog())
    assert str(raised.value).startswith(f"{path}:")
    assert problem in str(raised.value)

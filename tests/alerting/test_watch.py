"""`RulesFile`: rules that change while the service runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client import REGISTRY

from contracts.catalog import load_catalog
from services.alerting.rulebook import RulebookError
from services.alerting.watch import RulesFile
from tests.alerting.test_rulebook import VALID


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "rules.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def failures() -> float:
    return REGISTRY.get_sample_value("headrace_alerting_reload_failures_total") or 0.0


def thresholds(rules: RulesFile) -> list[float]:
    return [rule.threshold for rule in rules.rulebook.rules]


def test_a_changed_file_is_taken_once(tmp_path: Path) -> None:
    rules = RulesFile(write(tmp_path, VALID), load_catalog())
    assert not rules.refresh()
    write(tmp_path, VALID.replace("threshold: 40", "threshold: 50"))
    assert rules.refresh()
    assert not rules.refresh()
    assert thresholds(rules) == [50.0]


@pytest.mark.parametrize(
    "bad",
    [
        "rules: [",
        VALID.replace("wind_gust_mph\n", "wind\n"),
        "",
        VALID.replace('"{wind_gust_mph:.0f} mph at {station}"', "{{station}}"),
        VALID.replace("Loading stops.", "2013-02-30"),
        VALID.replace("threshold: 40", 'threshold: !!int "abc"'),
        VALID.replace("Loading stops.", "Loading\x07stops."),
    ],
)
def test_an_invalid_file_keeps_the_old_rules_and_counts_once(bad: str, tmp_path: Path) -> None:
    rules = RulesFile(write(tmp_path, VALID), load_catalog())
    before = failures()
    write(tmp_path, bad)
    assert [rules.refresh() for _ in range(3)] == [False] * 3
    assert thresholds(rules) == [40.0]
    assert failures() == before + 1
    assert REGISTRY.get_sample_value("headrace_alerting_rules_refused") == 1
    write(tmp_path, VALID.replace("threshold: 40", "threshold: 60"))
    assert rules.refresh()
    assert thresholds(rules) == [60.0]
    assert REGISTRY.get_sample_value("headrace_alerting_rules_refused") == 0


def test_a_file_that_is_gone_keeps_the_old_rules(tmp_path: Path) -> None:
    path = write(tmp_path, VALID)
    rules = RulesFile(path, load_catalog())
    path.unlink()
    assert not rules.refresh()
    assert thresholds(rules) == [40.0]


def test_an_invalid_file_at_the_start_is_no_start(tmp_path: Path) -> None:
    with pytest.raises(RulebookError, match="severity"):
        RulesFile(write(tmp_path, VALID.replace("critical", "urgent")), load_catalog())

"""`RulesFile`: rules that change while the service runs."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from prometheus_client import REGISTRY

from services.alerting.rules.rulebook import RulebookError
from services.alerting.rules.watch import RulesFile
from tests import sample
from tests.alerting.rules.test_rulebook import VALID

# Texts that once ended the process, took minutes, or gigabytes.
HOSTILE = [
    "[" * 3_000,
    "[" * 100_000,
    "rules: " + "{a: " * 100_000,
    "- " * 100_000,
    "".join(" " * level + "a:\n" for level in range(400)),
    "rules: [" + "a, " * 200_000 + "]",
    "".join(f"{name}: &{name} [*{below}, *{below}]\n" for name, below in pairwise("zyxwvutsrqponmlkjihgfedcba")),
    "rules: &rules [*rules]",
    VALID.replace("Loading stops.", "1:" * 400_000 + "1"),
    VALID.replace("threshold: 40", "threshold: 0x" + "f" * 9_000),
    VALID.replace("cooldown: 15m", "cooldown: 0x" + "f" * 9_000),
    "rules: 0x" + "f" * 9_000,
    "#" * 2_000_000,
    VALID + "".join(f"    unknown_{number}: x\n" for number in range(40_000)),
    VALID.replace("14.0", "(" * 70_000 + "14.0" + ")" * 70_000),
    VALID.replace("14.0", "14.0" + " + 1.0" * 1_500),
    VALID.replace("temperature_fahrenheit >", "[1, 2, 3].all(x, " * 30 + "temperature_fahrenheit >").replace("14.0", "14.0" + ")" * 30),
    VALID.replace("{station}", "{station:999999999}"),
    VALID.replace(":.0f}", ":.999999999f}"),
]  # fmt: skip


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "rules.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def failures() -> float:
    return REGISTRY.get_sample_value("headrace_alerting_reload_failures_total") or 0.0


def thresholds(rules: RulesFile) -> list[float]:
    return [rule.threshold for rule in rules.rulebook.rules]


def test_a_changed_file_is_taken_once(tmp_path: Path) -> None:
    rules = RulesFile(write(tmp_path, VALID), sample.catalog())
    assert not rules.refresh()
    write(tmp_path, VALID.replace("threshold: 40", "threshold: 50"))
    assert rules.refresh()
    assert not rules.refresh()
    assert thresholds(rules) == [50.0]


@pytest.mark.parametrize(
    "bad",
    [
        "rules: [",
        VALID.replace("wind_peak_mph\n", "wind\n"),
        "",
        VALID.replace('"{wind_peak_mph:.0f} mph at {station}"', "{{station}}"),
        VALID.replace("Loading stops.", "2013-02-30"),
        VALID.replace("threshold: 40", 'threshold: !!int "abc"'),
        VALID.replace("Loading stops.", "Loading\x07stops."),
        *HOSTILE,
    ],
    ids=lambda text: text[:20] or "nothing",
)
def test_an_invalid_file_keeps_the_old_rules_and_counts_once(bad: str, tmp_path: Path) -> None:
    rules = RulesFile(write(tmp_path, VALID), sample.catalog())
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
    rules = RulesFile(path, sample.catalog())
    path.unlink()
    assert not rules.refresh()
    assert thresholds(rules) == [40.0]


def test_an_invalid_file_at_the_start_is_no_start(tmp_path: Path) -> None:
    with pytest.raises(RulebookError, match="severity"):
        RulesFile(write(tmp_path, VALID.replace("critical", "urgent")), sample.catalog())

"""A rules file and what can be wrong with it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
import yaml

from contracts.definitions.catalog import Catalog
from services.alerting.rules.rulebook import RulebookError, load_rulebook
from services.alerting.settings import AlertingSettings
from tests import sample
from tests.alerting.examples import a_rule

VALID = """\
rules:
  - name: strong_wind
    description: Loading stops.
    topic: depots.observed.v1
    field: wind_peak_mph
    operator: ">="
    threshold: 40
    when: temperature_fahrenheit > 14.0
    group_by: [station]
    severity: critical
    cooldown: 15m
    message: "{wind_peak_mph:.0f} mph at {station}"
"""


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return sample.catalog()


def problems(text: str, tmp_path: Path, catalog: Catalog) -> list[str]:
    path = tmp_path / "rules.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(RulebookError) as refused:
        load_rulebook(path, catalog)
    return str(refused.value).replace(str(tmp_path) + "/", "").splitlines()


def test_a_valid_file_gives_its_rules_by_topic(tmp_path: Path, catalog: Catalog) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text(VALID, encoding="utf-8")
    rulebook = load_rulebook(path, catalog)
    assert [rule.name for rule in rulebook.rules] == ["strong_wind"]
    assert rulebook.rules[0].cooldown == 900


def test_rules_that_no_record_could_hold_are_refused(tmp_path: Path, catalog: Catalog) -> None:
    rules = VALID.removeprefix("rules:\n")
    long = rules.replace("Loading stops.", "x" * 9_000)
    many = "".join(long.replace("strong_wind", f"blasts{number}") for number in range(100))
    (problem,) = problems(f"rules:\n{many}", tmp_path, catalog)
    assert problem.startswith("rules.yaml:1: the rules of depots.observed.v1 have 9")
    assert problem.endswith("at most 834,464 can be put in force: shorten them, or make one of several")


def test_the_rules_of_the_sample_are_valid(catalog: Catalog) -> None:
    rulebook = load_rulebook(sample.RULES, catalog)
    assert len(rulebook.rules) >= 6
    assert set(rulebook.by_topic) == {"parcels.dispatched.enriched.v1", "parcels.lost.v1", "depots.observed.v1"}


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("field: wind_peak_mph", "field: wind_peek", "5: rule strong_wind: field: 'depots.observed.v1' has no field 'wind_peek'; did you mean 'wind_peak_mph'?"),
        ("field: wind_peak_mph", "field: station", "5: rule strong_wind: field: 'station' is no number but string"),
        ("field: wind_peak_mph", "field: observed_at", "5: rule strong_wind: field: 'observed_at' is no number but timestamp-millis"),
        ("group_by: [station]", "group_by: [depot]", "9: rule strong_wind: group_by: 'depots.observed.v1' has no field 'depot'"),
        ("{station}", "{statio}", "12: rule strong_wind: message: no field 'statio'; did you mean 'station'?"),
        ("{station}", "{station.upper}", "12: rule strong_wind: message: '{station.upper}' is not a field: write {name} or {name:format}"),
        ("{station}", "{station!r}", "12: rule strong_wind: message: '{station}' is not a field: write {name} or {name:format}"),
        ("{station}", "{}", "12: rule strong_wind: message: '{}' is not a field: write {name} or {name:format}"),
        ("{station}", "{station", "12: rule strong_wind: message: expected '}' before end of string"),
        (":.0f}", ":.0q}", "12: rule strong_wind: message: '{wind_peak_mph:.0q}': Unknown format code 'q' for object of type 'float'"),
        ("temperature_fahrenheit > 14.0", "temperature > 14.0", "8: rule strong_wind: when: no field 'temperature'; did you mean 'temperature_fahrenheit'?"),
        ("temperature_fahrenheit > 14.0", "celsius(temperature_fahrenheit) > 14.0", "8: rule strong_wind: when: no function 'celsius'"),
        ("temperature_fahrenheit > 14.0", "temperature_fahrenheit > 'x'", "8: rule strong_wind: when: the operation is not defined for the given operand types (temperature_fahrenheit is double)"),
        ("temperature_fahrenheit > 14.0", "station = '<input>'", "8: rule strong_wind: when: not CEL at character 9: token recognition error at: '= '; CEL compares with =="),
        ("temperature_fahrenheit > 14.0", "station == '='  3", "8: rule strong_wind: when: not CEL at character 17: extraneous input '3' expecting <EOF>"),
        ("when: temperature_fahrenheit > 14.0", "when: |\n      station ==\n      3 3", "8: rule strong_wind: when: not CEL at line 2, character 3: extraneous input '3' expecting <EOF>"),
        ("temperature_fahrenheit > 14.0", "station => 3", "8: rule strong_wind: when: not CEL at character 9: token recognition error at: '=>'"),
        ("temperature_fahrenheit > 14.0", "station == 'a=' 3", "8: rule strong_wind: when: not CEL at character 17: extraneous input '3' expecting <EOF>"),
        ("group_by: [station]", "group_by: depot", "9: rule strong_wind: group_by: 'depots.observed.v1' has no field 'depot'"),
        ("temperature_fahrenheit > 14.0", "temperature_fahrenheit", "8: rule strong_wind: when: is neither true nor false but float"),
        ("severity: critical", "severity: urgent", "10: rule strong_wind: severity: input should be 'info', 'warning' or 'critical'"),
        ('">="', '"=>"', "6: rule strong_wind: operator: input should be '>', '>=', '<', '<=', '==' or '!='"),
        ("threshold: 40", "threshold: '40'", "7: rule strong_wind: threshold: input should be a valid number"),
        ("threshold: 40", "threshold: .inf", "7: rule strong_wind: threshold: input should be a finite number"),
        ("cooldown: 15m", "cooldown: 15 minutes", "11: rule strong_wind: cooldown: value error, a whole number of seconds, or such as 90s, 15m, 6h, 1d"),
        ("cooldown:", "cool_down:", "11: rule strong_wind: cool_down: unknown key; did you mean 'cooldown'?"),
        ("    threshold: 40\n", "", "2: rule strong_wind: threshold: missing"),
        ("topic: depots.observed.v1", "topic: depots.observed.v2", "4: rule strong_wind: topic: no contract for 'depots.observed.v2'; did you mean 'depots.observed.v1'?"),
        ("topic: depots.observed.v1", "topic: replay.started.v1", "4: rule strong_wind: topic: the contract of 'replay.started.v1' doesn't list 'alerting' as a consumer"),
        ("topic: depots.observed.v1", "topic: alerts.raised.v1", "4: rule strong_wind: topic: no rule is asked about 'alerts.raised.v1', where the alerts themselves are"),
    ],
)  # fmt: skip
def test_an_error_names_file_line_rule_and_field(
    old: str, new: str, problem: str, tmp_path: Path, catalog: Catalog
) -> None:
    assert f"rules.yaml:{problem}" in problems(VALID.replace(old, new), tmp_path, catalog)


def test_a_group_of_one_field_needs_no_list(tmp_path: Path, catalog: Catalog) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text(VALID.replace("group_by: [station]", "group_by: station"))
    assert [rule.group_by for rule in load_rulebook(path, catalog).rules] == [("station",)]


def test_a_filter_that_does_not_parse_is_refused(tmp_path: Path, catalog: Catalog) -> None:
    [problem] = problems(VALID.replace("> 14.0", ">"), tmp_path, catalog)
    assert problem.startswith("rules.yaml:8: rule strong_wind: when: not CEL at character 25: mismatched input '<EOF>'")


@pytest.mark.parametrize(
    "when", ["unmatched[0] == 'vans'", "dimension_versions['vans'] == 3", "dimension_versions.vans > 3"]
)
def test_a_filter_that_looks_for_what_a_record_may_lack_is_none_to_refuse(
    when: str, tmp_path: Path, catalog: Catalog
) -> None:
    about = VALID.replace("depots.observed.v1", "parcels.dispatched.enriched.v1").replace(
        "wind_peak_mph", "weight_grams"
    )
    text = about.replace("temperature_fahrenheit > 14.0", when).replace("[station]", "[origin]")
    (tmp_path / "rules.yaml").write_text(text.replace(":.0f} mph at {station}", "} g"))
    assert len(load_rulebook(tmp_path / "rules.yaml", catalog).rules) == 1


def test_every_problem_of_a_file_is_named_at_once(tmp_path: Path, catalog: Catalog) -> None:
    text = VALID.replace("severity: critical", "severity: urgent") + VALID.removeprefix("rules:\n").replace("40", "x")
    assert [problem.split(":")[1] for problem in problems(text, tmp_path, catalog)] == ["10", "18"]


def test_two_rules_of_one_name_are_refused(tmp_path: Path, catalog: Catalog) -> None:
    assert problems(VALID + VALID.removeprefix("rules:\n"), tmp_path, catalog) == [
        "rules.yaml:13: rule strong_wind: name: 'strong_wind' is the name of the rule on line 2 too"
    ]


@pytest.mark.parametrize(
    "text", ["", "rules: 3", "- a", "rules:\n - a", "rules: [", "rules:\n  - {name: a, name: b}", "rule: []"]
)
def test_a_file_of_another_shape_is_refused(text: str, tmp_path: Path, catalog: Catalog) -> None:
    assert problems(text, tmp_path, catalog)[0].startswith("rules.yaml")


def test_a_missing_file_is_refused_by_name(tmp_path: Path, catalog: Catalog) -> None:
    with pytest.raises(RulebookError, match=r"nowhere\.yaml: not readable"):
        load_rulebook(tmp_path / "nowhere.yaml", catalog)


def test_the_operators_of_the_shipped_file_stand_in_quotes() -> None:
    text = AlertingSettings().rules_file.read_text(encoding="utf-8")
    assert all(isinstance(rule["operator"], str) for rule in yaml.safe_load(text)["rules"])


def test_the_example_names_its_rule_by_the_hash_of_its_content() -> None:
    path = Path("contracts/examples/rules.activated.v1/store_too_warm.json")
    [(version, text)] = json.loads(path.read_text(encoding="utf-8"))["rules"].items()
    content = json.loads(text)
    del content["description"]
    assert hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12] == version
    assert a_rule(**json.loads(text)).version == version

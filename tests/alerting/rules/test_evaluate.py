"""`evaluate` on small records."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from contracts.events import AlertRaised
from services.alerting.rules.evaluate import FilterFailed, compile_rule, evaluate
from tests.alerting.examples import AT, a_record, a_rule


def raised(record: Any = None, **rule: Any) -> list[AlertRaised]:
    return evaluate([compile_rule(a_rule(**rule))], record or a_record())


def test_an_alert_says_which_rule_matched_which_value_where() -> None:
    rule = a_rule(
        group_by=["station"], cooldown="15m", message="{wind_peak_mph:.0f} mph at {station}, seen {observed_at}"
    )
    [alert] = evaluate([compile_rule(rule)], a_record())
    assert alert.rule == "strong_wind"
    assert alert.rule_version == rule.version
    assert (alert.field, alert.operator, alert.threshold, alert.value) == ("wind_peak_mph", ">=", 40.0, 46.03)
    assert alert.message == "46 mph at NTH, seen 2013-01-01T12:00:00Z"
    assert alert.group_key == "NTH"
    assert alert.values == {"station": "NTH", "observed_at": "2013-01-01T12:00:00Z"}
    assert alert.coordinate == "depots.observed.v1/1/7"
    assert alert.occurred_at == AT
    assert alert.cooldown_seconds == 900


def test_a_repaired_record_raises_the_same_alert_again_and_those_that_its_lookups_let_match_now() -> None:
    """Alerting does not ask which revision it is: a rule about a looked-up field could not have matched before."""
    of_speed, of_size = a_rule(name="late"), a_rule(name="large", field="seats", threshold=300)
    rules = [compile_rule(of_speed), compile_rule(of_size)]
    [first] = evaluate(rules, a_record(revision=0, seats=None))
    again, new = evaluate(rules, a_record(revision=1, seats=350))
    assert (again, new.rule) == (first, "large")


@pytest.mark.parametrize(
    ("operator", "below", "equal", "above"),
    [
        (">", False, False, True),
        (">=", False, True, True),
        ("<", True, False, False),
        ("<=", True, True, False),
        ("==", False, True, False),
        ("!=", True, False, True),
    ],
)
def test_each_operator_compares_the_field_with_the_threshold(
    operator: str, below: bool, equal: bool, above: bool
) -> None:
    matches = [bool(raised(a_record(wind_peak_mph=value), operator=operator)) for value in (39.9, 40.0, 40.1)]
    assert matches == [below, equal, above]


@pytest.mark.parametrize("operator", [">", ">=", "<", "<=", "==", "!="])
@pytest.mark.parametrize("nothing", [None, float("nan")])
def test_a_null_field_matches_nothing(operator: str, nothing: float | None) -> None:
    assert raised(a_record(wind_peak_mph=nothing), operator=operator) == []


def test_a_decimal_equals_the_threshold_that_is_written_alike() -> None:
    record = a_record(precipitation_inches=Decimal("0.30"))
    for operator in ("==", ">=", "<="):
        assert raised(record, field="precipitation_inches", operator=operator, threshold=0.3)


def test_the_filter_is_asked_only_after_the_threshold_matched() -> None:
    impossible = "1 / 0 > 1"
    assert raised(a_record(wind_peak_mph=10.0), when=impossible) == []
    with pytest.raises(FilterFailed, match="strong_wind"):
        raised(a_record(), when=impossible)


@pytest.mark.parametrize(
    ("when", "matches"),
    [
        ("station == 'NTH'", True),
        ("station == 'STH'", False),
        ("temperature_fahrenheit > 40.0 && station in ['NTH', 'EST']", True),
        ("observed_at > timestamp('2013-01-01T11:59:59Z')", True),
        ("posted_on == timestamp('2013-01-01T00:00:00Z')", True),
        ("precipitation_inches < 0.4", True),
        ("'vans' in unmatched", True),
        ("unmatched.exists(x, x == 'couriers')", False),
    ],
)
def test_a_filter_sees_every_kind_of_field(when: str, matches: bool) -> None:
    record = a_record(posted_on=date(2013, 1, 1), precipitation_inches=Decimal("0.30"), unmatched=["vans"])
    assert bool(raised(record, when=when)) == matches


def test_a_filter_over_a_null_field_matches_nothing_unless_it_asks_for_null() -> None:
    record = a_record(temperature_fahrenheit=None)
    assert raised(record, when="temperature_fahrenheit > 40.0") == []
    assert raised(record, when="temperature_fahrenheit == null")


@pytest.mark.parametrize("when", ["rainy", "yard.blast > 40", "blasts.exists(mph, mph > 40)", "blasts[0] > 40"])
def test_a_null_wherever_a_filter_meets_it_matches_nothing(when: str) -> None:
    assert raised(a_record(rainy=None, yard={"blast": None}, blasts=[None]), when=when) == []


def test_a_filter_that_fails_says_how_it_would_not() -> None:
    with pytest.raises(FilterFailed, match="field != null && "):
        raised(a_record(unmatched=[]), when="unmatched[0] == 'vans'")


def test_a_filter_that_is_neither_true_nor_false_is_refused() -> None:
    with pytest.raises(FilterFailed, match="neither true nor false"):
        raised(when="temperature_fahrenheit")


def test_a_filter_goes_through_no_list_within_another_and_through_no_long_one() -> None:
    with pytest.raises(ValueError, match="more than one of all, exists"):
        raised(when="unmatched.all(x, unmatched.all(y, x != y))")
    once = "unmatched.all(x, x in unmatched)"
    assert raised(a_record(unmatched=["vans"] * 1_000), when=once)
    with pytest.raises(FilterFailed, match="a field has 1001 items, more than 1000"):
        raised(a_record(unmatched=["vans"] * 1_001), when=once)
    assert raised(a_record(unmatched=["vans"] * 1_001), when="'vans' in unmatched")


def test_a_null_field_in_message_and_group_is_unknown_and_no_value() -> None:
    [alert] = raised(a_record(tail=None), group_by=["station", "tail"], message="{tail:>5} at {station}")
    assert alert.message == "unknown at NTH"
    assert alert.group_key == "NTH/unknown"
    assert alert.values == {"station": "NTH"}


def test_the_same_record_and_rule_raise_the_same_alert_id() -> None:
    [first], [again] = raised(), raised()
    assert first == again


def test_another_coordinate_or_rule_version_raises_another_alert_id() -> None:
    [alert] = raised()
    [stricter] = raised(threshold=41)
    other = a_record()
    [elsewhere] = raised(type(other)(other.topic, "depots.observed.v1/1/8", other.occurred_at, other.values))
    assert len({alert.alert_id, stricter.alert_id, elsewhere.alert_id}) == 3


def test_the_description_is_not_part_of_the_version_and_units_of_time_are_one() -> None:
    assert a_rule(description="Other words.").version == a_rule().version
    assert a_rule(cooldown="15m").version == a_rule(cooldown=900).version
    assert a_rule(message="blasts!").version != a_rule().version


def test_every_rule_that_matches_raises_its_own_alert() -> None:
    rules = [compile_rule(a_rule(name=name, threshold=mph)) for name, mph in (("a", 30), ("b", 50), ("c", 40))]
    assert [alert.rule for alert in evaluate(rules, a_record())] == ["a", "c"]


def test_instants_are_told_in_utc() -> None:
    elsewhere = datetime.fromisoformat("2013-01-01T07:00:00-05:00")
    [alert] = raised(a_record(observed_at=elsewhere), message="{observed_at}")
    assert alert.message == AT.astimezone(UTC).isoformat().replace("+00:00", "Z")

"""The shipped rules on the whole data set: they fire often enough to be seen, and rarely enough to be read."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import pytest
from pydantic import BaseModel

from contracts import topics
from contracts.definitions.catalog import load_catalog
from contracts.events import AlertRaised, FlightCancelled, WeatherObserved
from services.alerting.rules.evaluate import evaluate
from services.alerting.rules.record import Record
from services.alerting.rules.rulebook import Rulebook, load_rulebook
from services.alerting.settings import AlertingSettings
from services.departures import event as departures
from services.nycflights.tables import read_table
from services.weather import event as weather
from tests.system.oracle import enriched_flights

EVENTS: dict[str, type[BaseModel]] = {
    each.name: each.model
    for each in (topics.FLIGHTS_DEPARTED_ENRICHED, topics.FLIGHTS_CANCELLED, topics.WEATHER_OBSERVED)
}
SHIPPED = frozenset(
    [
        "departure_very_late",
        "wide_body_late",
        "old_plane_late",
        "mountain_airport_late",
        "unregistered_plane_late",
        "florida_cancelled",
        "west_coast_cancelled",
        "strong_gusts",
        "fog",
        "cloudburst",
    ]
)
"""A rule of one's own may fire as seldom or as often as it likes."""

CLOCK_STARTS_AT = datetime(2013, 1, 1, 5, tzinfo=UTC)
DEFAULT_SPEED = 1_008
"""Seconds of event time per second of wall-clock time: a week in ten minutes."""


END_OF_DATA = datetime(2014, 1, 2, tzinfo=UTC)


def events(until: datetime) -> Iterator[tuple[str, datetime, dict[str, Any]]]:
    """Topic, event time and fields of every record that a rule may see; some of those after `until` are left out."""
    for fields in enriched_flights(until).values():
        yield "flights.departed.enriched.v1", fields["departed_at"], fields
    for row in read_table("flights"):
        if row["dep_time"] is None and isinstance(event := departures.event_of(row), FlightCancelled):
            yield "flights.cancelled.v1", event.scheduled_departure_at, vars(event)
    for row in read_table("weather"):
        if isinstance(reading := weather.event_of(row), WeatherObserved):
            yield "weather.observed.v1", reading.observed_at, vars(reading)


@pytest.fixture(scope="module")
def rulebook() -> Rulebook:
    return load_rulebook(AlertingSettings().rules_file, load_catalog())


def test_the_shipped_rules_are_valid(rulebook: Rulebook) -> None:
    assert len(rulebook.rules) >= 6
    assert set(rulebook.by_topic) == EVENTS.keys()


@cache
def evaluated(until: datetime = END_OF_DATA) -> tuple[Counter[str], list[AlertRaised]]:
    """Records by topic, and every alert, up to `until`."""
    rules = load_rulebook(AlertingSettings().rules_file, load_catalog())
    records: Counter[str] = Counter()
    alerts: list[AlertRaised] = []
    for topic, occurred_at, fields in events(until):
        if occurred_at > until:
            continue
        record = Record(topic, f"{topic}/0/{records[topic]}", occurred_at, fields)
        records[topic] += 1
        alerts += evaluate(rules.by_topic.get(topic, ()), record)
    return records, alerts


@pytest.mark.long
def test_each_fires_at_least_twenty_times_on_less_than_one_percent_of_its_records(rulebook: Rulebook) -> None:
    records, alerts = evaluated()
    assert records.total() == 328_521 + 8_255 + 26_115
    fired = Counter(alert.rule for alert in alerts)
    for rule in (each for each in rulebook.rules if each.name in SHIPPED):
        assert 20 <= fired[rule.name] < records[rule.topic] / 100, f"{rule.name} fires {fired[rule.name]} times"


def test_none_fails_on_a_record_whose_nullable_fields_are_null(rulebook: Rulebook) -> None:
    catalog = load_catalog()
    for topic, compiled in rulebook.by_topic.items():
        if topic not in EVENTS:
            continue
        example = min((catalog.root / "examples" / topic).glob("*.json"))
        values = vars(EVENTS[topic].model_validate_json(example.read_text(encoding="utf-8")))
        schema = json.loads(catalog.schema(topic))
        nullable = [each["name"] for each in schema["fields"] if "null" in each["type"]]
        for rule in compiled:
            crossing = {**values, rule.rule.field: rule.rule.threshold}
            for nulls in ([], nullable, *([each] for each in nullable)):
                fields = crossing | {name: None for name in nulls if name != rule.rule.field}
                evaluate([rule], Record(topic, f"{topic}/0/0", CLOCK_STARTS_AT, fields))


@pytest.mark.long
def test_every_alert_of_the_year_is_another_one() -> None:
    _, alerts = evaluated()
    assert len({alert.alert_id for alert in alerts}) == len(alerts)


def test_the_first_alert_comes_within_25_seconds_of_the_clock_at_the_default_speed() -> None:
    _, alerts = evaluated(CLOCK_STARTS_AT + timedelta(days=1))
    first = min(alert.occurred_at for alert in alerts)
    assert (first - CLOCK_STARTS_AT) / DEFAULT_SPEED < timedelta(seconds=25)

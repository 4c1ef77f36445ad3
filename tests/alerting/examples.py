"""Valid defaults, with one visible override at a time."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from contracts.events import AlertRaised, Severity
from contracts.subscriber import Record as Received
from services.alerting.rules.record import Record
from services.alerting.rules.rule import Rule
from tests.sample import topics

AT = datetime(2013, 1, 1, 12, tzinfo=UTC)


def a_rule(**changes: Any) -> Rule:
    """A rule on blasts at or above 40 mph."""
    fields: dict[str, Any] = {
        "name": "strong_wind",
        "description": "Loading stops.",
        "topic": "depots.observed.v1",
        "field": "wind_peak_mph",
        "operator": ">=",
        "threshold": 40,
        "severity": "critical",
        "message": "blasts at {station}",
    }
    return Rule.model_validate(fields | changes)


def a_record(**values: Any) -> Record:
    """A reading with blasts of 46 mph at NTH."""
    fields: dict[str, Any] = {
        "station": "NTH",
        "observed_at": AT,
        "temperature_fahrenheit": 41.0,
        "wind_peak_mph": 46.03,
        "visibility_miles": 10.0,
    }
    return Record("depots.observed.v1", "depots.observed.v1/1/7", AT, fields | values)


def an_alert(**changes: Any) -> AlertRaised:
    """A raised alert of the rule `strong_wind` in the group NTH, with a cooldown of ten minutes."""
    fields: dict[str, Any] = {
        "alert_id": UUID(int=1),
        "rule": "strong_wind",
        "rule_version": "0123456789ab",
        "severity": Severity.critical,
        "group_key": "NTH",
        "message": "blasts at NTH",
        "topic": "depots.observed.v1",
        "coordinate": "depots.observed.v1/1/7",
        "occurred_at": AT,
        "field": "wind_peak_mph",
        "operator": ">=",
        "threshold": 40.0,
        "value": 46.03,
        "values": {"station": "NTH"},
        "cooldown_seconds": 600,
    }
    return AlertRaised.model_validate(fields | changes)


def a_raised(alert: AlertRaised, *, offset: int = 0) -> Received[AlertRaised]:
    """An alert as a subscriber gets it; its value is not its bytes."""
    value = f"value {offset}".encode()
    return Received(topics.ALERTS_RAISED.name, 0, offset, 1_357_041_600_000, None, value, (), event=alert)

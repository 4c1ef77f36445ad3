"""`Cooldown`: what is told and what is held back."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from contracts.events import AlertRaised
from services.alerting.notify import Cooldown, Notification, webhook_body
from tests.alerting.examples import AT, a_raised, an_alert

CENTURY = 100 * 365 * 24 * 60.0


def at(minutes: float, *, group: str = "JFK", rule: str = "strong_gusts", cooldown_seconds: int = 600) -> AlertRaised:
    return an_alert(
        alert_id=UUID(int=int(minutes * 60)),
        occurred_at=AT + timedelta(minutes=minutes),
        group_key=group,
        rule=rule,
        cooldown_seconds=cooldown_seconds,
    )


def told(cooldown: Cooldown, alert: AlertRaised) -> list[tuple[float, str, int]]:
    """Minutes, group and `more` of what is told after `alert`."""
    return [
        ((notice.alert.occurred_at - AT) / timedelta(minutes=1), notice.alert.group_key, notice.more)
        for notice in cooldown.take(a_raised(alert))
    ]


def test_the_first_alert_of_a_group_is_told() -> None:
    raised = a_raised(an_alert())
    assert Cooldown().take(raised) == [Notification(raised, more=0)]


def test_alerts_in_cooldown_are_counted_and_told_with_the_next() -> None:
    cooldown = Cooldown()
    assert told(cooldown, at(0)) == [(0, "JFK", 0)]
    assert told(cooldown, at(3)) == []
    assert told(cooldown, at(9.9)) == []
    assert told(cooldown, at(10)) == [(10, "JFK", 2)]
    assert told(cooldown, at(19)) == []


def test_a_cooldown_that_ended_with_alerts_held_back_tells_the_latest_of_them() -> None:
    cooldown = Cooldown()
    told(cooldown, at(0))
    told(cooldown, at(3))
    told(cooldown, at(4))
    assert told(cooldown, at(11, group="EWR")) == [(4, "JFK", 1), (11, "EWR", 0)]
    # That was a notification too: the next of the group waits for its cooldown.
    assert told(cooldown, at(12)) == []
    assert told(cooldown, at(21)) == [(21, "JFK", 1)]


def test_groups_and_rules_have_cooldowns_of_their_own() -> None:
    cooldown = Cooldown()
    assert told(cooldown, at(0)) == [(0, "JFK", 0)]
    assert told(cooldown, at(1, group="EWR")) == [(1, "EWR", 0)]
    assert told(cooldown, at(2, rule="fog")) == [(2, "JFK", 0)]


def test_without_cooldown_every_alert_is_told() -> None:
    cooldown = Cooldown()
    assert [told(cooldown, at(minute, cooldown_seconds=0)) for minute in (0, 0, 1)] == [
        [(0, "JFK", 0)],
        [(0, "JFK", 0)],
        [(1, "JFK", 0)],
    ]


def test_an_alert_that_comes_late_is_held_back() -> None:
    cooldown = Cooldown()
    assert told(cooldown, at(30)) == [(30, "JFK", 0)]
    assert told(cooldown, at(25)) == []


def test_an_alert_of_another_century_is_told_and_mutes_neither_its_group_nor_another() -> None:
    cooldown = Cooldown()
    assert told(cooldown, at(0)) == [(0, "JFK", 0)]
    assert told(cooldown, at(0, group="EWR")) == [(0, "EWR", 0)]
    assert told(cooldown, at(1, group="EWR")) == []
    assert told(cooldown, at(CENTURY)) == [(1, "EWR", 0), (CENTURY, "JFK", 0)]
    assert told(cooldown, at(2)) == [(2, "JFK", 0)]
    assert told(cooldown, at(3)) == []
    # The next cooldown of the group that was told of begins with the alert told.
    assert told(cooldown, at(10, group="EWR")) == []
    assert told(cooldown, at(11, group="EWR")) == [(11, "EWR", 1)]
    assert told(cooldown, at(12)) == [(12, "JFK", 1)]


def test_the_last_instant_that_there_is_has_a_cooldown_too() -> None:
    cooldown = Cooldown()
    last = a_raised(an_alert(occurred_at=datetime.max.replace(tzinfo=UTC)))
    assert [len(cooldown.take(last)) for _ in range(2)] == [1, 0]
    assert told(cooldown, at(0)) == [(0, "JFK", 1)]


def test_a_topic_that_is_ahead_ends_no_cooldown_of_another() -> None:
    cooldown = Cooldown()
    assert told(cooldown, at(0)) == [(0, "JFK", 0)]
    assert told(cooldown, at(1)) == []
    ahead = at(500, rule="late").model_copy(update={"topic": "flights.departed.enriched.v1"})
    assert told(cooldown, ahead) == [(500, "JFK", 0)]
    assert told(cooldown, at(9)) == []


def test_groups_that_are_over_are_forgotten() -> None:
    cooldown = Cooldown()
    for minute in range(1_000):
        cooldown.take(a_raised(at(minute, group=f"group {minute}")))
    assert len(cooldown._groups) <= 11


def test_the_body_has_a_line_for_people_and_the_whole_alert() -> None:
    body = json.loads(webhook_body(Notification(a_raised(an_alert()), more=3)))
    assert body["text"] == "[critical] strong_gusts: gusts at JFK (and 3 more)"
    assert body["more"] == 3
    assert body["alert"]["coordinate"] == "weather.observed.v1/1/7"
    assert body["alert"]["occurred_at"] == "2013-01-01T12:00:00Z"


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_a_value_that_is_no_number_in_json_is_null(value: float) -> None:
    body = json.loads(webhook_body(Notification(a_raised(an_alert(value=value)), more=0)))
    assert body["alert"]["value"] is None

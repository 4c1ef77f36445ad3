"""`Cooldown`: what is told and what is held back."""

from __future__ import annotations

import json
import math
import sys
import tracemalloc
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import FrameType
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.events import AlertRaised
from contracts.subscriber import Record
from services.alerting.notifying import notify
from services.alerting.notifying.notify import Cooldown, Notification, webhook_body
from tests.alerting.examples import AT, a_raised, an_alert

CENTURY = 100 * 365 * 24 * 60.0


def at(minutes: float, *, group: str = "NTH", rule: str = "strong_wind", cooldown_seconds: int = 600) -> AlertRaised:
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
    assert told(cooldown, at(0)) == [(0, "NTH", 0)]
    assert told(cooldown, at(3)) == []
    assert told(cooldown, at(9.9)) == []
    assert told(cooldown, at(10)) == [(10, "NTH", 2)]
    assert told(cooldown, at(19)) == []


def test_a_cooldown_that_was_shortened_holds_back_no_more_and_a_longer_one_begins_with_the_next_that_is_told() -> None:
    cooldown = Cooldown()
    assert told(cooldown, at(0)) == [(0, "NTH", 0)]
    assert told(cooldown, at(3)) == []
    assert told(cooldown, at(4, cooldown_seconds=0)) == [(4, "NTH", 1)]
    assert told(cooldown, at(5)) == [(5, "NTH", 0)]
    assert told(cooldown, at(16, cooldown_seconds=1200)) == [(16, "NTH", 0)]
    assert told(cooldown, at(27, cooldown_seconds=1200)) == []


def test_a_cooldown_that_ended_with_alerts_held_back_tells_the_latest_of_them() -> None:
    cooldown = Cooldown()
    told(cooldown, at(0))
    told(cooldown, at(3))
    told(cooldown, at(4))
    assert told(cooldown, at(11, group="EST")) == [(4, "NTH", 1), (11, "EST", 0)]
    # That was a notification too: the next of the group waits for its cooldown.
    assert told(cooldown, at(12)) == []
    assert told(cooldown, at(21)) == [(21, "NTH", 1)]


def test_groups_and_rules_have_cooldowns_of_their_own() -> None:
    cooldown = Cooldown()
    assert told(cooldown, at(0)) == [(0, "NTH", 0)]
    assert told(cooldown, at(1, group="EST")) == [(1, "EST", 0)]
    assert told(cooldown, at(2, rule="fog")) == [(2, "NTH", 0)]


def test_without_cooldown_every_alert_is_told() -> None:
    cooldown = Cooldown()
    assert [told(cooldown, at(minute, cooldown_seconds=0)) for minute in (0, 0, 1)] == [
        [(0, "NTH", 0)],
        [(0, "NTH", 0)],
        [(1, "NTH", 0)],
    ]


def test_an_alert_that_comes_late_is_held_back() -> None:
    cooldown = Cooldown()
    assert told(cooldown, at(30)) == [(30, "NTH", 0)]
    assert told(cooldown, at(25)) == []


def test_an_alert_of_another_century_is_told_and_mutes_neither_its_group_nor_another() -> None:
    cooldown = Cooldown()
    assert told(cooldown, at(0)) == [(0, "NTH", 0)]
    assert told(cooldown, at(0, group="EST")) == [(0, "EST", 0)]
    assert told(cooldown, at(1, group="EST")) == []
    assert told(cooldown, at(CENTURY)) == [(1, "EST", 0), (CENTURY, "NTH", 0)]
    assert told(cooldown, at(2)) == [(2, "NTH", 0)]
    assert told(cooldown, at(3)) == []
    # The next cooldown of the group that was told of begins with the alert told.
    assert told(cooldown, at(10, group="EST")) == []
    assert told(cooldown, at(11, group="EST")) == [(11, "EST", 1)]
    assert told(cooldown, at(12)) == [(12, "NTH", 1)]


def test_the_last_instant_that_there_is_has_a_cooldown_too() -> None:
    cooldown = Cooldown()
    last = a_raised(an_alert(occurred_at=datetime.max.replace(tzinfo=UTC)))
    assert [len(cooldown.take(last)) for _ in range(2)] == [1, 0]
    assert told(cooldown, at(0)) == [(0, "NTH", 1)]


def test_a_topic_that_is_ahead_ends_no_cooldown_of_another() -> None:
    cooldown = Cooldown()
    assert told(cooldown, at(0)) == [(0, "NTH", 0)]
    assert told(cooldown, at(1)) == []
    ahead = at(500, rule="late").model_copy(update={"topic": "parcels.dispatched.enriched.v1"})
    assert told(cooldown, ahead) == [(500, "NTH", 0)]
    assert told(cooldown, at(9)) == []


def test_groups_that_are_over_are_forgotten() -> None:
    cooldown = Cooldown()
    for minute in range(1_000):
        cooldown.take(a_raised(at(minute, group=f"group {minute}")))
    assert len(cooldown._groups) <= 11


class ByTheRule:
    """What `Cooldown` says of itself, looking at every group for each alert."""

    def __init__(self) -> None:
        self.groups: dict[tuple[str, str, str], tuple[datetime, timedelta, list[Record[AlertRaised]]]] = {}

    def take(self, record: Record[AlertRaised]) -> list[Notification]:
        alert, told = record.event, []
        key = (alert.topic, alert.rule, alert.group_key)
        for other, (at, cooldown, held) in list(self.groups.items()):
            if other == key or other[0] != alert.topic or alert.occurred_at - at < cooldown:
                continue
            del self.groups[other]
            if held:
                told.append(Notification(held[-1], more=len(held) - 1))
                self.groups[other] = (held[-1].event.occurred_at, cooldown, [])
        at, cooldown, held = self.groups.get(key, (alert.occurred_at, timedelta(), []))
        if abs(alert.occurred_at - at) < min(cooldown, timedelta(seconds=alert.cooldown_seconds)):
            held.append(record)
            return told
        self.groups[key] = (alert.occurred_at, timedelta(seconds=alert.cooldown_seconds), [])
        return [*told, Notification(record, more=len(held))]


@given(
    st.lists(
        st.builds(
            at,
            st.one_of(st.integers(0, 60), st.just(CENTURY)),
            group=st.sampled_from("abcde"),
            rule=st.sampled_from(["fog", "late"]),
            cooldown_seconds=st.sampled_from([-60, 0, 60, 600, 2**31 - 1]),
        ),
        max_size=60,
    )
)
def test_what_is_told_is_what_the_rule_says(alerts: list[AlertRaised]) -> None:
    cooldown, rule = Cooldown(), ByTheRule()
    for offset, alert in enumerate(alerts):
        record = a_raised(alert, offset=offset)
        told, expected = cooldown.take(record), rule.take(record)
        assert len(told) == len(expected)
        assert all(notification in expected for notification in told)


def lines_of(cooldown: Cooldown, alert: AlertRaised) -> int:
    """How many lines of the module one alert takes."""
    lines = 0

    def count(frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal lines
        if frame.f_code.co_filename != notify.__file__:
            return None  # Hypothesis has a callback of the garbage collector
        lines += event == "line"
        return count

    record, before = a_raised(alert), sys.gettrace()
    sys.settrace(count)
    try:
        cooldown.take(record)
    finally:
        sys.settrace(before)
    return lines


def test_an_alert_takes_no_more_where_there_are_a_thousand_times_as_many_groups() -> None:
    lines = []
    for groups in (100, 100_000):
        cooldown = Cooldown(most_bytes=10**9)
        alert = at(0)
        for number in range(groups):
            cooldown.take(a_raised(alert.model_copy(update={"group_key": f"group {number}"})))
        lines.append([lines_of(cooldown, at(minute, group="another")) for minute in (1, 2, 3)])
    assert lines[0] == lines[1]


def test_what_groups_take_is_bounded_and_every_alert_is_told_or_counted() -> None:
    most_bytes, alerts, told = 2_000_000, 3_000, 0
    cooldown = Cooldown(most_bytes)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(alerts):
            for again in range(2):
                alert = at(0, group=f"{number} {'x' * (number % 1000)}")
                found = cooldown.take(replace(a_raised(alert), offset=again, value=bytes(1_000)))
                told += sum(1 + notification.more for notification in found)
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert told + sum(group.held for group in cooldown._groups.values()) == 2 * alerts
    assert cooldown.cut == alerts - len(cooldown._groups) > 0
    assert taken < 1.5 * most_bytes
    # The last groups are those that are kept.
    assert cooldown.take(a_raised(at(1, group=next(reversed(cooldown._groups))[2]))) == []


def test_receivers_share_what_their_cooldowns_may_take() -> None:
    cooldowns = [Cooldown(2_000_000, receivers=4) for _ in range(4)]
    for number in range(1_000):
        for cooldown in cooldowns:
            told(cooldown, at(0, group=f"{number}"))
    assert 1_900_000 < sum(cooldown._bytes for cooldown in cooldowns) <= 2_000_000


def test_entries_of_groups_that_are_forgotten_do_not_pile_up() -> None:
    cooldown = Cooldown()
    for _ in range(1_000):
        told(cooldown, at(CENTURY))
        told(cooldown, at(0))
    assert cooldown._entries < 20


def test_the_body_has_a_line_for_people_and_the_whole_alert() -> None:
    body = json.loads(webhook_body(Notification(a_raised(an_alert()), more=3)))
    assert body["text"] == "[critical] strong_wind: blasts at NTH (and 3 more)"
    assert body["more"] == 3
    assert body["alert"]["coordinate"] == "depots.observed.v1/1/7"
    assert body["alert"]["occurred_at"] == "2013-01-01T12:00:00Z"


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_a_value_that_is_no_number_in_json_is_null(value: float) -> None:
    body = json.loads(webhook_body(Notification(a_raised(an_alert(value=value)), more=0)))
    assert body["alert"]["value"] is None

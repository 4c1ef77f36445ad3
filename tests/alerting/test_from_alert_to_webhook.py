"""The notifiers on the real stack: what becomes of alerts."""

from __future__ import annotations

import socket
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from contracts.dead_letters.redrive import redrive
from contracts.dead_letters.selection import Selection, Verdict
from contracts.dead_letters.topic import DeadLetterTopic
from contracts.servers.registry import Registry
from contracts.subscriber import Subscriber
from deploy.local.servers.stack import LocalStack
from tests import sample
from tests.alerting.endpoint import Endpoint
from tests.alerting.examples import AT
from tests.alerting.test_from_record_to_alert import a_reading, a_station
from tests.alerting.worker import Worker, publish_readings, settings_of, wait_for
from tests.sample import topics

pytestmark = pytest.mark.system

TOKEN = "T0K3N"
ALERTS = topics.ALERTS_RAISED.name


def receivers_file(tmp_path: Path, urls: dict[str, str]) -> Path:
    path = tmp_path / "receivers.yaml"
    entries = [
        f"  - {{name: {name}, url: '{url}/{TOKEN}', authorization: Bearer {TOKEN}}}" for name, url in urls.items()
    ]
    path.write_text("\n".join(["receivers:", *entries]), encoding="utf-8")
    return path


def tell_from_now_on(stack: LocalStack, *receivers: str) -> None:
    """The receivers have been told of all alerts that other tests have raised."""
    for name in receivers:
        group = f"alerting-notify-{name}"
        with Subscriber(topics.ALERTS_RAISED, group, settings_of(stack), start="latest", idle_seconds=0.1) as alerts:
            assert not list(alerts)


def nobody_listens() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"


def told(endpoint: Endpoint, station: str) -> list[dict[str, Any]]:
    """The notifications of this station."""
    return [post for post in endpoint.posts if post["alert"]["group_key"] == station]


def minutes(post: dict[str, Any]) -> float:
    return (datetime.fromisoformat(post["alert"]["occurred_at"]) - AT) / timedelta(minutes=1)


def test_each_receiver_is_told_whatever_the_others_do(stack: LocalStack, tmp_path: Path) -> None:
    first, second = a_station(), a_station()
    with (
        Endpoint(500, "drop", 200) as shaky,
        Endpoint(422) as picky,
        Endpoint() as elsewhere,
        Endpoint(307, location=elsewhere.url) as moved,
    ):
        urls = {"dead": nobody_listens(), "shaky": shaky.url, "picky": picky.url, "moved": moved.url}
        tell_from_now_on(stack, "shaky", "picky")
        with Worker(stack, HEADRACE_RECEIVERS_FILE=receivers_file(tmp_path, urls)) as worker:
            publish_readings(stack, [a_reading(first), a_reading(second)])
            wait_for(lambda: told(shaky, first) and told(shaky, second), "the receiver that is up again")
            wait_for(lambda: told(picky, first) and told(picky, second), "the receiver that accepts nothing")
            failed = 'headrace_alerting_notifications_total{outcome="failed",receiver="dead"}'
            wait_for(lambda: worker.metric(failed) >= 2, "the receiver that is down to be tried twice")
            wait_for(lambda: moved.posts, "the receiver that redirects to be tried")
            assert worker.health() == 200
        assert elsewhere.posts == []
        assert not any(TOKEN in line for line in worker.log)


def test_a_refused_alert_that_is_redriven_is_posted_again(stack: LocalStack, tmp_path: Path) -> None:
    station, settings = a_station(), settings_of(stack)
    with Endpoint(422) as endpoint, Registry(settings.registry) as registry:
        dead_letters = DeadLetterTopic(settings.kafka, sample.catalog(), registry, ALERTS)
        name = f"picky-{station.lower()}"
        file = receivers_file(tmp_path, {name: endpoint.url})
        tell_from_now_on(stack, name)

        def refused() -> list[str]:
            return [each.coordinate for each in dead_letters.letters() if station.encode() in (each.value or b"")]

        with Worker(stack, HEADRACE_RECEIVERS_FILE=file):
            publish_readings(stack, [a_reading(station)])
            wait_for(refused, "the dead letter")
            (letter,) = refused()
            verdicts = redrive(dead_letters, Selection(coordinate=letter), again=False, on_letter=lambda *_: None)
            assert verdicts == {Verdict.REDRIVE: 1}
            wait_for(lambda: len(told(endpoint, station)) == 2, "the alert to be posted again")


def test_alerts_in_cooldown_are_told_as_a_number(stack: LocalStack, tmp_path: Path) -> None:
    rules = tmp_path / "rules.yaml"
    text = sample.RULES.read_text(encoding="utf-8")
    rules.write_text(text.replace("cooldown: 3h", "cooldown: 10m"), encoding="utf-8")
    station = a_station()
    tell_from_now_on(stack, "cooldown")
    with Endpoint() as endpoint:
        file = receivers_file(tmp_path, {"cooldown": endpoint.url})
        with Worker(stack, HEADRACE_RECEIVERS_FILE=file, HEADRACE_RULES_FILE=rules):
            publish_readings(
                stack, [a_reading(station, observed_at=AT + timedelta(minutes=minute)) for minute in (0, 3, 6, 10, 25)]
            )
            wait_for(lambda: len(told(endpoint, station)) == 3, "three notifications")
        assert [(minutes(post), post["more"]) for post in told(endpoint, station)] == [(0, 0), (10, 2), (25, 0)]


def test_an_alert_that_was_not_told_when_the_service_stopped_is_told_by_the_next(
    stack: LocalStack, tmp_path: Path
) -> None:
    station = a_station()
    tell_from_now_on(stack, "patient")
    with Endpoint(503) as endpoint:
        file = receivers_file(tmp_path, {"patient": endpoint.url})
        with Worker(stack, HEADRACE_RECEIVERS_FILE=file):
            publish_readings(stack, [a_reading(station)])
            wait_for(lambda: len(endpoint.posts) >= 2, "two attempts")
    with Endpoint() as endpoint:
        file = receivers_file(tmp_path, {"patient": endpoint.url})
        with Worker(stack, HEADRACE_RECEIVERS_FILE=file):
            wait_for(lambda: told(endpoint, station), "the notification")

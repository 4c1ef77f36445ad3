"""`Webhook` against a real HTTP server."""

from __future__ import annotations

import json
import logging
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Timer

import pytest
from pydantic import SecretStr

from services.alerting.notifying.receiver import Receiver
from services.alerting.notifying.webhook import Outcome, Webhook, pause_seconds
from tests.alerting.endpoint import Endpoint

BODY = {"text": "blasts"}
JSON = json.dumps(BODY).encode()


@contextmanager
def webhook(url: str, *, stop: Event | None = None, authorization: str | None = None) -> Iterator[Webhook]:
    secret = None if authorization is None else SecretStr(authorization)
    receiver = Receiver(name="ops", url=SecretStr(url), authorization=secret, timeout_seconds=0.5)
    hook = Webhook(receiver, stop or Event(), chance=lambda: 0.0)
    try:
        yield hook
    finally:
        hook.close()


def test_a_notification_is_posted_as_json_with_its_key_and_authorization() -> None:
    with Endpoint() as endpoint, webhook(endpoint.url, authorization="Bearer T0K3N") as hook:
        assert hook.post(JSON, idempotency_key="alert 1") is Outcome.DELIVERED
        assert endpoint.posts == [BODY]
        [headers] = endpoint.headers
    assert headers["Content-Type"] == "application/json"
    assert headers["Idempotency-Key"] == "alert 1"
    assert headers["Authorization"] == "Bearer T0K3N"


@pytest.mark.parametrize("trouble", [500, 503, 429, 408, 401, 404, "drop", "hang", "trickle"])
def test_what_fails_is_tried_again_with_the_same_key(trouble: int | str) -> None:
    with Endpoint(trouble, trouble, 204) as endpoint, webhook(endpoint.url) as hook:
        assert hook.post(JSON, idempotency_key="alert 1") is Outcome.DELIVERED
        assert endpoint.posts == [BODY] * 3
        assert {headers["Idempotency-Key"] for headers in endpoint.headers} == {"alert 1"}


def test_a_receiver_that_comes_up_later_gets_it() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{probe.getsockname()[1]}/hook"
    stop = Event()
    with webhook(url, stop=stop) as hook:
        Timer(1.0, stop.set).start()
        assert hook.post(JSON, idempotency_key="alert 1") is Outcome.STOPPED


@pytest.mark.parametrize("status", [400, 413, 422])
def test_what_the_receiver_calls_unacceptable_is_not_tried_again(status: int) -> None:
    with Endpoint(status) as endpoint, webhook(endpoint.url) as hook:
        assert hook.post(JSON, idempotency_key="alert 1") is Outcome.REFUSED
        assert len(endpoint.posts) == 1


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_is_not_followed(status: int) -> None:
    stop = Event()
    with (
        Endpoint() as elsewhere,
        Endpoint(status, location=elsewhere.url) as endpoint,
        webhook(endpoint.url, stop=stop) as hook,
    ):
        Timer(1.0, stop.set).start()
        assert hook.post(JSON, idempotency_key="alert 1") is Outcome.STOPPED
        assert endpoint.posts
        assert elsewhere.posts == []


def test_an_endless_answer_is_not_read() -> None:
    with Endpoint("endless") as endpoint, webhook(endpoint.url) as hook:
        started = time.monotonic()
        assert hook.post(JSON, idempotency_key="alert 1") is Outcome.DELIVERED
        assert time.monotonic() - started < 5


def test_neither_url_nor_authorization_are_logged(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    for name in ("httpx", "httpcore"):
        logging.getLogger(name).setLevel(logging.WARNING)
    with Endpoint(500, 200) as endpoint, webhook(endpoint.url + "/T0K3N", authorization="Bearer T0K3N") as hook:
        hook.post(JSON, idempotency_key="alert 1")
    output = capsys.readouterr()
    assert "T0K3N" not in caplog.text + output.out + output.err
    assert "receiver does not take a notification" in caplog.text + output.out + output.err


def test_pauses_double_up_to_a_minute_and_differ_by_half() -> None:
    assert [pause_seconds(attempt, 1.0) for attempt in (0, 1, 2, 3)] == [0.5, 1.0, 2.0, 4.0]
    assert pause_seconds(1_000_000, 1.0) == 60.0
    assert pause_seconds(1_000_000, 0.0) == 30.0

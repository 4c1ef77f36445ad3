"""What a deployable shows of itself."""

from __future__ import annotations

import json
import socket
import subprocess
import sys

import httpx
import pytest
from prometheus_client import Counter

from contracts.errors import HeadraceError
from contracts.observe import serve_health
from contracts.settings import HttpSettings

SPOKEN = Counter("headrace_tests_spoken", "Words spoken in tests.")


def get(port: int, path: str) -> httpx.Response:
    return httpx.get(f"http://127.0.0.1:{port}{path}", trust_env=False)


def logged(statements: str, **env: str) -> str:
    """What a process that configures logging and runs `statements` writes to stderr."""
    program = (
        "import logging, structlog\n"
        "from contracts.observe import configure_logging\n"
        "from contracts.settings import Settings\n"
        f"configure_logging(Settings(), service='readings')\n{statements}"
    )
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True)
    assert done.stdout == ""
    return done.stderr


def test_health_is_ok_while_nothing_is_wrong_and_says_what_is() -> None:
    reasons: list[str | None] = [None, "the broker is away"]
    with serve_health(HttpSettings(), service="readings", healthy=lambda: reasons.pop(0)) as server:
        well, ill = get(server.port, "/health"), get(server.port, "/health")
    assert (well.status_code, well.text) == (200, "ok")
    assert (ill.status_code, ill.text) == (503, "the broker is away")


def test_a_health_check_that_raises_is_not_healthy() -> None:
    with serve_health(HttpSettings(), service="readings", healthy=lambda: str(1 // 0)) as server:
        answer = get(server.port, "/health")
    assert (answer.status_code, answer.text.partition(":")[0]) == (503, "ZeroDivisionError")


def test_metrics_are_prometheus_own() -> None:
    SPOKEN.inc(3)
    with serve_health(HttpSettings(), service="readings", healthy=lambda: None) as server:
        answer = get(server.port, "/metrics")
        assert get(server.port, "/elsewhere").status_code == 404
    assert answer.headers["content-type"].startswith("text/plain")
    assert "headrace_tests_spoken_total 3.0" in answer.text


def test_a_port_that_is_taken_is_one_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(HeadraceError, match="cannot serve /health on"):
        serve_health(HttpSettings(port=taken.getsockname()[1]), service="readings", healthy=lambda: None)


def test_a_log_line_is_one_json_object_with_service_and_fields() -> None:
    (line,) = logged("structlog.get_logger('here').info('rows read', rows=3)").splitlines()
    fields = json.loads(line)
    assert fields.pop("timestamp").endswith("Z")
    assert fields == {"event": "rows read", "rows": 3, "level": "info", "logger": "here", "service": "readings"}


def test_what_libraries_log_looks_the_same() -> None:
    (line,) = logged("logging.getLogger('kafka').warning('lost %s', 'broker 1')").splitlines()
    fields = json.loads(line)
    assert (fields["event"], fields["level"], fields["service"]) == ("lost broker 1", "warning", "readings")


def test_an_exception_stays_on_its_line() -> None:
    (line,) = logged("try: 1 // 0\nexcept ZeroDivisionError: structlog.get_logger().exception('failed')").splitlines()
    assert "ZeroDivisionError" in json.loads(line)["exception"]


def test_lines_below_the_level_are_left_out() -> None:
    assert logged("structlog.get_logger().info('rows read')", HEADRACE_LOG_LEVEL="WARNING") == ""


def test_the_console_format_is_for_people() -> None:
    line = logged("structlog.get_logger().info('rows read', rows=3)", HEADRACE_LOG_FORMAT="console")
    assert "rows read" in line and "rows=3" in line and not line.startswith("{")

"""The pages about settings and metrics are what the code says."""

from __future__ import annotations

import prometheus_client

import services.alerting.metrics  # noqa: F401  it registers its metrics
import spark.runtime.metrics
import spark.sinks.delta.upkeep
import spark.sinks.kafka.exactly_once  # noqa: F401  it, too
from deploy.references import metrics_page, references, settings_page


def test_the_committed_pages_are_what_the_code_says() -> None:
    assert references().stale() == [], "run: python -m deploy.references"


def test_every_setting_stands_once() -> None:
    page = settings_page()
    for variable in ("HEADRACE_KAFKA__SASL_PASSWORD", "HEADRACE_LIVE__MODE", "HEADRACE_RULES_FILE", "HEADRACE_SPEED"):
        assert f"| `{variable}` |" in page
    assert page.count("| `HEADRACE_KAFKA__BOOTSTRAP_SERVERS` |") == 1
    assert "| `HEADRACE_LIVE__MODE` | `exactly-once`, `real-time`, `at-least-once` | `exactly-once` | which" in page
    assert "None" not in page, "a setting without a description"


def test_every_metric_that_is_registered_is_told() -> None:
    page = metrics_page()
    names = {each.name for each in prometheus_client.REGISTRY.collect() if each.name.startswith("headrace_")}
    names -= {name for name in names if name.startswith("headrace_tests_")}
    assert "headrace_alerting_rules" in names
    assert {name for name in names if f"| `{name}` |" not in page} == set()

"""The way from flights to alerts, every step of it from an image."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest
from pydantic import HttpUrl

from contracts import topics
from contracts.definitions.catalog import load_catalog
from contracts.events import AlertRaised
from contracts.settings import KafkaSettings, RegistrySettings, Settings
from contracts.subscriber import Record, Subscriber
from deploy.local.downloads.spark_env import spark_env
from deploy.local.servers.landing import create_bucket, upload_dimensions
from deploy.local.servers.ports import Ports
from deploy.local.servers.stack import LocalStack
from tests.images.builder import Builder, Container
from tests.images.conftest import StartContainer, say
from tests.images.wait import finished, tail, wait_until

pytestmark = [pytest.mark.images, pytest.mark.system, pytest.mark.timeout(1800)]

# As in deploy/compose.services.yaml; Spark finishes the batch at hand.
_GRACE_SECONDS = 30.0
_SPARK_GRACE_SECONDS = 90.0


@pytest.fixture
def new_stack(tmp_path: Path) -> Iterator[LocalStack]:
    """A stack of its own: replaying services go on where their topics end, and here they begin."""
    with LocalStack(tmp_path / "stack") as running:
        yield running


def test_flights_become_alerts(
    images: dict[str, str],
    builder: Builder,
    start_container: StartContainer,
    new_stack: LocalStack,
    request: pytest.FixtureRequest,
) -> None:
    # Java and jars are this machine's, where the image has its own.
    environment = {key: value for key, value in new_stack.settings_env().items() if key not in spark_env()}
    ports = Ports.free()

    def run(
        name: str, *arguments: str, port: int = 0, program: tuple[str, ...] | None = None, **more: str
    ) -> Container:
        command = [*(program or builder.config(images[name]).entrypoint), *arguments]
        served = {"HEADRACE_HTTP__HOST": "127.0.0.1", "HEADRACE_HTTP__PORT": str(port)}
        return start_container(images[name], command, environment | served | more)

    create_bucket(new_stack.settings().s3)
    upload_dimensions(new_stack.settings().s3, load_catalog())
    for container in (run("replay", program=("python", "-m", "contracts")), run("dimensions", "--once")):
        assert finished(container, seconds=120) == 0, tail(container)

    live = run("spark", "run", "departures_enriched", port=ports.of("live"))
    alerting = run("alerting", port=ports.of("alerting"))
    departures = run("departures", port=ports.of("departures"), HEADRACE_LIMIT="20000")
    weather = run("weather", port=ports.of("weather"))
    services = (live, alerting, departures, weather)
    clock = run("replay", "--speed", "100000", "--data-start", "2013-01-01T05:00Z")
    assert finished(clock, seconds=60) == 0, tail(clock)

    def healthy(name: str, port: int) -> bool:
        # The image's own health check, from beside the container: both use this machine's network.
        return finished(run(name, program=builder.config(images[name]).health_command, port=port), seconds=30) == 0

    wait_until(lambda: healthy("spark", ports.of("live")), "live was healthy", seconds=120, watched=(live,))
    wait_until(
        lambda: healthy("alerting", ports.of("alerting")), "alerting was healthy", seconds=60, watched=(alerting,)
    )

    alerts = _collect_alerts(new_stack)
    enriched = topics.FLIGHTS_DEPARTED_ENRICHED.name
    wait_until(
        lambda: any(alert.topic == enriched for alert in alerts),
        "an alert about an enriched flight was read",
        seconds=180,
        watched=services,
    )
    say(request, f"{len(alerts)} alerts, the first about {alerts[0].coordinate}: {alerts[0].message}")
    assert finished(departures, seconds=120) == 0, tail(departures)

    for container, grace in ((weather, _GRACE_SECONDS), (alerting, _GRACE_SECONDS), (live, _SPARK_GRACE_SECONDS)):
        container.ask_to_stop()
        assert finished(container, seconds=grace) == 0, tail(container)


def _collect_alerts(stack: LocalStack) -> list[AlertRaised]:
    """A list that grows as alerts are read, as any team would read them."""
    settings = Settings(
        kafka=KafkaSettings(bootstrap_servers=stack.kafka.bootstrap_servers),
        registry=RegistrySettings(url=HttpUrl(stack.registry.url)),
    )
    alerts: list[AlertRaised] = []

    def read() -> None:
        with Subscriber(topics.ALERTS_RAISED, "images", settings) as subscriber:
            for record in subscriber:
                assert isinstance(record, Record), record
                alerts.append(record.event)
                if record.event.topic == topics.FLIGHTS_DEPARTED_ENRICHED.name:
                    return

    Thread(target=read, daemon=True).start()
    return alerts

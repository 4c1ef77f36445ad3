"""The images, built once per run, where the run asks for them by `-m images`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import pytest
from dotenv import dotenv_values

from tests.deploy.producers import PACKED
from tests.images.buildah import Buildah
from tests.images.builder import ROOT, Builder, Container
from tests.images.docker import Docker

SERVICES = ("replay", *PACKED, "dimensions", "alerting", "audit")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the images out of a run that doesn't name them: they take minutes and gigabytes."""
    if "images" not in config.getoption("markexpr"):
        for item in items:
            if item.get_closest_marker("images"):
                item.add_marker(pytest.mark.skip(reason="images are built only when asked for: -m images"))


@pytest.fixture(scope="session")
def builder(request: pytest.FixtureRequest) -> Builder:
    """Docker or Podman where one works, else buildah."""
    base = dotenv_values(ROOT / "deploy/versions.env")["PYTHON_IMAGE"]
    assert base is not None
    found: Builder | None = Docker.found(base) or Buildah.found()
    if found is None:
        pytest.skip(
            "nothing here can build images: install Docker or Podman and see that it runs, or, as root on Debian or"
            " Ubuntu, install the packages buildah and debootstrap"
        )
    say(request, f"images are built with {found.description}")
    return found


def say(request: pytest.FixtureRequest, line: str) -> None:
    """A line for whoever watches the run, whether or not output is captured."""
    capture = request.config.pluginmanager.get_plugin("capturemanager")
    assert capture is not None
    with capture.global_and_fixture_disabled():
        print(f"\n{line}", flush=True)


@pytest.fixture(scope="session")
def images(builder: Builder) -> dict[str, str]:
    """The tag of every deployable's image."""
    tags = {name: f"headrace/{name}:test" for name in (*SERVICES, "spark")}
    for service in SERVICES:
        builder.build(tags[service], "deploy/images/service.Dockerfile", EXTRA=service)
    builder.build(tags["spark"], "deploy/images/spark.Dockerfile")
    return tags


class StartContainer(Protocol):
    """Starts a container that is removed after the test, at the latest."""

    def __call__(
        self, image: str, command: Sequence[str], environment: Mapping[str, str] = ..., *, user: str | None = ...
    ) -> Container: ...


@pytest.fixture
def start_container(builder: Builder, tmp_path: Path) -> Iterator[StartContainer]:
    started: list[Container] = []

    def start(
        image: str, command: Sequence[str], environment: Mapping[str, str] | None = None, *, user: str | None = None
    ) -> Container:
        log = tmp_path / f"container-{len(started)}.log"
        started.append(builder.start(image, command, environment or {}, log, user=user))
        return started[-1]

    yield start
    for container in reversed(started):
        container.remove()

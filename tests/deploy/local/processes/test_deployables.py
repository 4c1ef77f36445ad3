"""The one file that lists what runs."""

from __future__ import annotations

import importlib.util
import tomllib
from pathlib import Path

import pytest
import yaml

from contracts.definitions.catalog import load_catalog
from contracts.definitions.pipelines import pipeline_files
from deploy.errors import DeployError
from deploy.local.processes import deployable
from deploy.local.processes.deployable import FILE, ROOT, deployables
from deploy.local.servers.landing import first_rows
from tests.deploy.producers import DATA_SET


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    found = tmp_path / "deployables.yaml"
    found.write_text(FILE.read_text())
    monkeypatch.setattr(deployable, "FILE", found)
    return found


@pytest.mark.parametrize("each", deployables().deployables, ids=lambda each: each.name)
def test_what_the_file_lists_can_be_run(each: deployable.Deployable) -> None:
    assert importlib.util.find_spec(f"{each.module}.__main__") is not None


def test_what_compose_runs_can_be_installed() -> None:
    files = (ROOT / "deploy" / f"compose.{name}.yaml" for name in ("services", "domain"))
    composed = {name for file in files for name in yaml.safe_load(file.read_text())["services"]}
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    there = [each for each in deployables().deployables if each.name in composed]
    assert len(there) >= 7
    assert {each.module.rpartition(".")[2] for each in there} <= extras.keys()


def test_the_pipelines_that_run_by_default_are_there() -> None:
    assert set(deployables().pipelines) <= pipeline_files().keys()
    assert deployables().named("live").command == ("spark", "run", *deployables().pipelines)
    assert deployables().live(["a", "b"]).command == ("spark", "run", "a", "b")


def test_each_dimension_has_first_rows_here() -> None:
    catalog = load_catalog()
    without = [each.name for each in catalog.dimensions.values() if first_rows(catalog, each) is None]
    assert without == [each.name for each in catalog.dimensions.values() if each.topic is not None]


def test_a_package_that_is_not_there_is_named(file: Path) -> None:
    file.write_text(file.read_text().replace(f"tables: {DATA_SET}/", "tables: nowhere/", 1))
    with pytest.raises(DeployError, match="tables: there is no package nowhere"):
        _ = deployables.__wrapped__().tables_folder


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("role: reader, port: 19106", "role: listener, port: 19106", "role: Input should be 'producer', 'pipelines'"),
        ("port: 19106", "port: 19107", "two deployables have the same name or port"),
        ("role: pipelines", "role: reader", "one deployable has the role pipelines"),
        ("port: 19106", "prot: 19106", "prot: Extra inputs are not permitted"),
        (f"tables: {DATA_SET}", "tables: /tmp", "tables: String should match pattern"),
        ("deployables:", "deployables: [", ":"),
    ],
)
def test_a_wrong_file_is_named_with_what_is_wrong(file: Path, old: str, new: str, why: str) -> None:
    file.write_text(file.read_text().replace(old, new, 1))
    with pytest.raises(DeployError) as raised:
        deployables.__wrapped__()
    assert str(raised.value).startswith(f"{file}: ")
    assert why in str(raised.value)

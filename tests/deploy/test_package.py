"""The wheel for other repositories: it works by itself, beside any code."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from contracts.errors import ContractError
from deploy.errors import DeployError
from deploy.local.servers.stack import LocalStack
from deploy.package import package
from tests import sample
from tests.contracts.project import a_project, applied

# What another team would write; its own package happens to be called `contracts`, and holds nothing of ours.
PROGRAM = """
import json, sys, uuid
import contracts
from headrace_client import Publisher, Settings, Subscriber, topics

(topic,) = (each for name, each in vars(topics).items() if name.isupper())
settings = Settings()
event = topic.model.model_validate_json(sys.stdin.read())
with Publisher(settings, service="dispatches", topics=[topic]) as publisher:
    publisher.publish(topic, event, event_id="one")
with Subscriber(topic, group=uuid.uuid4().hex, settings=settings, idle_seconds=2) as records:
    print(json.dumps([record.event == event for record in records]))
foreign = ("pyspark", "deploy", "services", "spark", "boto3", "typer")
print(json.dumps([name for name in foreign if name in sys.modules]))
"""


def test_it_publishes_and_subscribes_without_anything_else_of_ours(stack: LocalStack, tmp_path: Path) -> None:
    catalog = a_project(tmp_path / "project")
    topic = applied(catalog, stack)
    site = tmp_path / "site"
    with zipfile.ZipFile(package(catalog, [topic], tmp_path, "1.2.3")) as wheel:
        wheel.extractall(site)
    (site / "contracts").mkdir()
    (site / "contracts" / "__init__.py").touch()
    example = sample.catalog().root / "examples" / "parcels.dispatched.v1" / "left_late.json"
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=site,
        input=example.read_text(),
        env={**stack.settings_env(), "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert [json.loads(line) for line in done.stdout.splitlines()] == [[True], []], done.stderr


def test_it_holds_the_chosen_topics_and_what_their_fields_mean(tmp_path: Path) -> None:
    wheel = package(sample.catalog(), ["depots.observed.v1"], tmp_path, "1.2.3")
    with zipfile.ZipFile(wheel) as files:
        names = set(files.namelist())
        metadata = files.read("headrace_client-1.2.3.dist-info/METADATA").decode()
    assert {name.partition("/")[0] for name in names} == {"headrace_client", "headrace_client-1.2.3.dist-info"}
    assert "headrace_client/docs/odcs/depots.observed.v1.yaml" in names
    assert [name for name in names if name.endswith(".avsc")] == ["headrace_client/schemas/depots.observed.v1/1.avsc"]
    needed = {line.split()[1].split("<")[0].split(">")[0] for line in metadata.splitlines() if "Requires-Dist" in line}
    assert {"confluent-kafka", "fastavro", "pydantic"} <= needed
    assert not needed & {"pyspark", "boto3", "typer", "pyarrow", "prometheus-client"}


def test_a_topic_that_is_not_there_and_a_version_that_is_none_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ContractError, match="no contract for topic 'nope'"):
        package(sample.catalog(), ["nope"], tmp_path, "1.2.3")
    with pytest.raises(DeployError, match="The wheel can't be built: .*[Ii]nvalid version"):
        package(sample.catalog(), ["depots.observed.v1"], tmp_path, "x y")
    assert list(tmp_path.iterdir()) == []

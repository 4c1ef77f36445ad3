"""`new_service`: a service that publishes to one topic."""

from __future__ import annotations

from pathlib import Path

from contracts.definitions.catalog import Catalog
from contracts.definitions.example import example_files
from deploy.errors import DeployError
from deploy.local.processes.deployable import FILE, ROOT, deployables
from deploy.new.files import NewFiles, rendered


def new_service(name: str, topic: str, catalog: Catalog) -> NewFiles:
    """It publishes the topic's first example, until somebody writes where the events come from."""
    contract = catalog.topic(topic)
    if contract.derivation is not None:
        raise DeployError(f"{topic} is derived by a pipeline: run headrace new pipeline")
    if name not in contract.producers:
        raise DeployError(f"{topic} is published by {', '.join(contract.producers)}; name {name} among its producers")
    example = next(example_files(catalog.root, topic), None)
    if example is None:
        raise DeployError(f"{topic} has no example; write contracts/examples/{topic}/first.json")
    port = max(each.port for each in deployables().deployables) + 1
    files = NewFiles(
        {
            f"services/{name}/__init__.py": f'"""Publishes {topic}."""\n',
            f"services/{name}/__main__.py": rendered(
                "service.py.txt",
                name=name,
                topic=topic,
                constant=contract.constant,
                example=Path("contracts", "examples", topic, example.name).as_posix(),
            ),
        }
    )
    entry = f"  - {{name: {name}, module: services.{name}, role: producer, port: {port}}}\n"
    files.append(FILE.relative_to(ROOT).as_posix(), entry)
    return files

"""The rooms of each package, from the top of the page down: each imports only itself and those that stand below it."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local.processes.deployable import ROOT

ROOMS = {
    "contracts": (
        "contracts",
        "contracts.documents",
        "contracts.dead_letters",
        "contracts.publisher",
        "contracts.delivery",
        "contracts.servers",
        "contracts.checks",
        "contracts.definitions",
        "contracts.records",
        "contracts.observe",
        "contracts.command_line",
        "contracts.settings",
        "contracts.topics",
        "contracts.events",
        "contracts.handle",
        "contracts.errors",
    ),
    "spark": (
        "spark",
        "spark.trial",
        "spark.state",
        "spark.pipelines",
        "spark.sql_pipeline",
        "spark.queries",
        "spark.queries.real_time",
        "spark.derivation.stateful",
        "spark.derivation",
        "spark.sinks.stateful",
        "spark.sinks.kafka",
        "spark.sinks.delta",
        "spark.pipeline",
        "spark.memory",
        "spark.lookups",
        "spark.records",
        "spark.sources",
        "spark.runtime",
        "spark.runtime.internals",
        "spark.runtime.workers",
    ),
    "services.alerting": (
        "services.alerting",
        "services.alerting.notifying",
        "services.alerting.consuming",
        "services.alerting.rules",
        "services.alerting.metrics",
        "services.alerting.delays",
        "services.alerting.settings",
    ),
    "services.audit": (
        "services.audit",
        "services.audit.distinct",
        "services.audit.rankings",
        "services.audit.joins",
        "services.audit.aggregates",
        "services.audit.hops",
        "services.audit.records",
        "services.audit.sources",
        "services.audit.declared",
        "services.audit.values",
        "services.audit.settings",
        "services.audit.errors",
    ),
    "deploy.local": (
        "deploy.local",
        "deploy.local.watching",
        "deploy.local.servers",
        "deploy.local.processes",
        "deploy.local.downloads",
    ),
}
"""A name of a module, not of a package, is a room of one file."""
_MOST_FILES = 12
_GENERATED = ("events", "topics")
_OF_ONE_KIND = ("pipelines",)
"""Folders with a file for each thing of a kind, by its name, which grow with what users add."""
_PRIVATE_TO_SPARK = {"_jvm", "_jdf", "_jsc", "_jsq", "_jwrite", "_jsparkSession", "_gateway"}


@pytest.mark.parametrize("package", ROOMS)
def test_imports_go_down_the_page_only(package: str) -> None:
    rooms = ROOMS[package]
    upwards = [
        f"{module} imports {imported}"
        for module, file in _modules(package)
        for imported in _imports(package, file)
        if rooms.index(_room(package, imported)) < rooms.index(_room(package, module))
    ]
    assert upwards == []


@pytest.mark.parametrize("package", ROOMS)
def test_no_room_is_a_heap(package: str) -> None:
    rooms = [_room(package, module) for module, _ in _modules(package)]
    assert set(rooms) == set(ROOMS[package])
    assert {
        room: rooms.count(room)
        for room in rooms
        if rooms.count(room) > _MOST_FILES and not room.endswith((*_GENERATED, *_OF_ONE_KIND))
    } == {}


@pytest.mark.parametrize("tree", ["deploy", "tests"])
def test_no_folder_is_a_heap(tree: str) -> None:
    modules = Counter(
        file.parent.relative_to(ROOT).as_posix()
        for file in (ROOT / tree).rglob("*.py")
        if file.name not in ("__init__.py", "conftest.py")
    )
    assert {
        folder: count
        for folder, count in modules.items()
        if count > _MOST_FILES and not folder.endswith((*_GENERATED, "sample/pipelines"))
    } == {}


def test_only_one_room_knows_what_is_private_to_spark() -> None:
    elsewhere = [
        f"{module}: {node.attr}"
        for module, file in _modules("spark")
        if _room("spark", module) != "spark.runtime.internals"
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr in _PRIVATE_TO_SPARK
    ]
    assert elsewhere == []


def test_tests_append_in_order() -> None:
    """By `tests.producers.ordered`, or by a configuration that tells how it is acknowledged."""
    bare = [
        f"{file.relative_to(ROOT)}:{node.lineno}"
        for file in sorted((ROOT / "tests").rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "Producer"
        if not re.search(r"PRODUCER_CONFIG|'enable\.idempotence'|'acks'", ast.unparse(node))
    ]
    assert bare == []


def _modules(package: str) -> Iterator[tuple[str, Path]]:
    for file in sorted((ROOT / package.replace(".", "/")).rglob("*.py")):
        if file.name != "__init__.py" or file.parent.name in _GENERATED:
            yield ".".join(file.relative_to(ROOT).with_suffix("").parts), file


def _room(package: str, module: str) -> str:
    return module if module in ROOMS[package] else module.rpartition(".")[0]


def _imports(package: str, file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module is not None and f"{node.module}.".startswith(f"{package}."):
            of_room = (ROOT / node.module.replace(".", "/")).is_dir()
            yield from (f"{node.module}.{each.name}" for each in node.names) if of_room else [node.module]

"""The rooms of `spark`, in the way of the data: each imports only itself and those that stand behind it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from deploy.local.deployable import ROOT

ROOMS = (
    "spark",
    "spark.pipelines",
    "spark.queries",
    "spark.sinks.kafka",
    "spark.sinks.delta",
    "spark.pipeline",
    "spark.lookups",
    "spark.records",
    "spark.sources",
    "spark.runtime",
    "spark.runtime.internals",
)
_MOST_FILES = 12


def test_imports_go_down_the_page_only() -> None:
    upwards = [
        f"{module} imports {imported}"
        for module, file in _modules()
        for imported in _imports(file)
        if ROOMS.index(_room(imported)) < ROOMS.index(_room(module))
    ]
    assert upwards == []


def test_no_room_is_a_heap() -> None:
    rooms = [_room(module) for module, _ in _modules()]
    assert set(rooms) == set(ROOMS)
    assert {room: rooms.count(room) for room in ROOMS if rooms.count(room) > _MOST_FILES} == {}


def _modules() -> Iterator[tuple[str, Path]]:
    for file in sorted((ROOT / "spark").rglob("*.py")):
        if file.name != "__init__.py":
            yield ".".join(file.relative_to(ROOT).with_suffix("").parts), file


def _room(module: str) -> str:
    # What pipelines are written with is a room of one file.
    return module if module == "spark.pipeline" else module.rpartition(".")[0]


def _imports(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module is not None and node.module.startswith("spark."):
            yield from (f"{node.module}.{each.name}" for each in node.names) if node.module in ROOMS else [node.module]

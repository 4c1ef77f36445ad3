"""`package`: a wheel for teams with a repository of their own: some topics, a publisher and a subscriber, and nothing else of ours."""

from __future__ import annotations

import ast
import importlib.metadata
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from contracts.definitions.catalog import CONTRACTS, Catalog
from contracts.documents.files import odcs_files
from contracts.documents.python import generate
from deploy.errors import DeployError

NAME = "headrace-client"
_PACKAGE = "headrace_client"
_ENTRIES = ("publisher.py", "subscriber.py", "settings.py", "errors.py", "handle.py")
_IMPORT = re.compile(r"^(\s*(?:from|import) )contracts\b", re.MULTILINE)
_INIT = '''"""{description}"""

from {package} import topics
from {package}.publisher import Publisher
from {package}.settings import Settings
from {package}.subscriber import Record, Subscriber, Undecodable

__all__ = ["Publisher", "Record", "Settings", "Subscriber", "Undecodable", "topics"]
'''


def package(catalog: Catalog, topics: Sequence[str], directory: Path, version: str) -> Path:
    """Build the wheel of these topics into a folder; returns its path.

    Raises ContractError if there is no such topic, DeployError if the wheel can't be built.
    """
    chosen = replace(catalog, topics={name: catalog.topic(name) for name in topics})
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for path, text in _files(chosen, version):
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text, encoding="utf-8")
        command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", "dist"]
        built = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
        if built.returncode:
            said = (built.stderr.strip() or built.stdout.strip()).splitlines()[-1:]
            raise DeployError(f"The wheel can't be built: {''.join(said)}")
        (wheel,) = (root / "dist").glob("*.whl")
        directory.mkdir(parents=True, exist_ok=True)
        return Path(shutil.copy(wheel, directory))


def _files(catalog: Catalog, version: str) -> Iterator[tuple[Path, str]]:
    own, description = Path(_PACKAGE), f"Events of {', '.join(catalog.topics)}, typed, by Headrace's contracts."
    modules = _reached()
    for module in modules:
        yield own / module, _renamed(_read(CONTRACTS / module))
    for path, text in generate(catalog).texts.items():
        yield own / path, _renamed(text)
    yield own / "__init__.py", _INIT.format(description=description, package=_PACKAGE)
    yield own / "py.typed", ""
    for name, topic in catalog.topics.items():
        yield own / "topics" / f"{name}.yaml", _read(catalog.topic_file(name))
        folder = Path("schemas") / topic.schema_folder
        for number, schema in enumerate(catalog.schemas(name), start=1):
            yield own / folder / f"{number}.avsc", schema
    for path, text in odcs_files(catalog).items():
        yield own / path, text
    yield Path("pyproject.toml"), _pyproject(description, version, modules)


def _reached() -> list[Path]:
    """What the publisher and the subscriber import of ours, and that of ours, but for what is generated."""
    found: dict[Path, None] = {}
    waiting = [Path(entry) for entry in _ENTRIES]
    while waiting:
        module = waiting.pop()
        if module in found or module.parts[0] in ("events", "topics"):
            continue
        found[module] = None
        if module.parent != Path():
            found[module.parent / "__init__.py"] = None
        for name in _imports(module):
            path = Path(f"{name.removeprefix('contracts.').replace('.', '/')}.py")
            if name.startswith("contracts.") and (CONTRACTS / path).is_file():
                waiting.append(path)
    return sorted(found)


def _imports(module: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(_read(CONTRACTS / module))):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{each.name}" for each in node.names)


def _renamed(text: str) -> str:
    return _IMPORT.sub(rf"\1{_PACKAGE}", text)


def _pyproject(description: str, version: str, modules: Sequence[Path]) -> str:
    imported = {name.partition(".")[0] for module in modules for name in _imports(module)}
    distributions = importlib.metadata.packages_distributions()
    needed = {_normal(each) for name in imported for each in distributions.get(name, ())}
    ours = [each for each in importlib.metadata.requires("headrace") or () if "extra ==" not in each]
    required = [each for each in ours if _normal(re.split(r"[\s<>=!~;\[]", each)[0]) in needed]
    # A list of texts and a text in JSON are such in TOML.
    return f"""[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "{NAME}"
version = {json.dumps(version)}
description = {json.dumps(description)}
requires-python = ">=3.11"
dependencies = {json.dumps(required)}

[tool.hatch.build.targets.wheel]
packages = ["{_PACKAGE}"]
"""


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")

"""Released schemas: frozen files, listed with their SHA-256 in `schemas/TOPIC/released.sha256`.

The list is in `sha256sum` format: `cd contracts/schemas/TOPIC && sha256sum -c released.sha256` reads it too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from pathlib import Path

from contracts.definitions.catalog import Catalog
from contracts.definitions.contract_file import Problem, named

LIST = "released.sha256"


def read_released(root: Path) -> dict[str, str]:
    """SHA-256 by schema file (relative to `schemas/`), of every released schema."""
    released = {}
    for path in sorted((root / "schemas").glob(f"*/{LIST}")):
        for line in path.read_text(encoding="utf-8").splitlines():
            digest, _, file = line.partition("  ")
            released[f"{path.parent.name}/{file}"] = digest
    return released


def check_released(catalog: Catalog) -> list[Problem]:
    """Released files that changed or vanished."""
    root, problems = catalog.root, []
    released = read_released(root)
    for file, digest in released.items():
        path = root / "schemas" / file
        if not path.exists():
            problems.append(Problem(named(root, path), None, "released, but the file is gone", "restore it"))
        elif _digest(path) != digest:
            cure = "restore it, and put the change into a new version file"
            problems.append(Problem(named(root, path), None, "released, but the file has changed", cure))
    return problems


def check_successors(catalog: Catalog) -> list[Problem]:
    """Versions with a successor that were never released."""
    root, problems = catalog.root, []
    released = read_released(root)
    for topic in catalog.topics.values():
        folder = topic.schema_folder
        for version in range(1, topic.schema_version):
            path = root / "schemas" / folder / f"{version}.avsc"
            if path.exists() and f"{folder}/{version}.avsc" not in released:
                cure = f"run `headrace contracts release {topic.name}`"
                problems.append(Problem(named(root, path), None, "has a newer version, but was not released", cure))
    return problems


def release(catalog: Catalog, names: Collection[str] | None = None) -> list[str]:
    """Freeze every schema file of these topics, or of all, that is not yet released; returns their names, relative to `schemas/`.

    Raises ContractError if there is no such topic.
    """
    root = catalog.root
    released = read_released(root)
    new = []
    for topic in catalog.topics.values() if names is None else [catalog.topic(name) for name in dict.fromkeys(names)]:
        folder = topic.schema_folder
        files = [f"{folder}/{version}.avsc" for version in range(1, topic.schema_version + 1)]
        added = [file for file in files if file not in released]
        with (root / "schemas" / folder / LIST).open("a", encoding="utf-8") as listed:
            listed.writelines(f"{_digest(root / 'schemas' / file)}  {Path(file).name}\n" for file in added)
        new += added
    return new


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()

"""`fork`: a copy of the tree with the flights taken out by `deploy/domain.yaml`, and the bicycles of `tree/` laid over it."""

from __future__ import annotations

import shutil
from pathlib import Path

from contracts.documents.diagram import BEGIN, END
from deploy.local.processes.deployable import ROOT
from tests.deploy.clone import Clone
from tests.second_domain.domain import machinery_files

TREE = Path(__file__).parent / "tree"


def fork(folder: Path) -> Clone:
    """The fork, in an empty folder; what is generated from the contracts is not there yet."""
    for path in machinery_files():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, folder / path)
    shutil.copytree(TREE, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    (folder / "docs").mkdir()
    (folder / "docs" / "flow.md").write_text(f"{BEGIN}\n{END}\n", encoding="utf-8")
    return Clone(folder)

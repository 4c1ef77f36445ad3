"""What the tests of commands share."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from deploy.local.processes.deployable import ROOT
from tests.deploy.clone import Clone


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    for room in ("contracts", "services", "spark", "deploy", "docs"):
        shutil.copytree(ROOT / room, tmp_path / room, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return Clone(tmp_path)

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from contracts.definitions.catalog import CONTRACTS
from deploy.local.processes.deployable import ROOT
from tests import sample
from tests.sample.generated import generated


def test_its_contracts_keep_every_rule() -> None:
    assert [str(problem) for problem in sample.problems()] == []


def test_its_models_and_handles_are_what_its_schemas_ask_for() -> None:
    assert generated().stale() == [], "run `python -m tests.sample.generated`"


def test_it_has_the_platforms_own_contracts_by_links() -> None:
    links = [path for path in sample.CONTRACTS.rglob("*") if path.is_symlink()]
    assert len(links) == 11
    for link in links:
        assert not link.readlink().is_absolute()
        assert link.resolve() == (CONTRACTS / link.relative_to(sample.CONTRACTS)).resolve()


def test_a_module_that_is_run_on_it_knows_its_contracts_only(tmp_path: Path) -> None:
    (tmp_path / "shown.py").write_text(
        "from contracts.definitions.catalog import load_catalog\nprint(*load_catalog().topics)"
    )
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"}
    command = [sys.executable, "-m", "tests.sample.run", "shown"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == set(sample.catalog().topics)

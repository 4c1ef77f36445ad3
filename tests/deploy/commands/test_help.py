"""What is said before anything is installed, and without a stack."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from deploy.commands.rules import rules_app

ROOT = Path(__file__).parents[3]
HEADRACE = str(Path(sys.executable).parent / "headrace")
RULES = ROOT / "services" / "alerting" / "rules.yaml"


def test_the_help_of_a_fresh_clone_is_that_of_the_command() -> None:
    plain = {"COLUMNS": "80", "TERM": "dumb", "NO_COLOR": "1", "PATH": "/usr/bin:/bin"}
    said = subprocess.run([HEADRACE, "--help"], env=plain, capture_output=True, text=True, check=True).stdout
    there = (ROOT / "deploy" / "help.txt").read_text()
    assert there.splitlines() == [line.rstrip() for line in said.splitlines()], "run: headrace --help > deploy/help.txt"


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_a_fresh_clone_tells_its_commands_and_installs_nothing(tmp_path: Path, arguments: list[str]) -> None:
    for file in ("headrace", "deploy/help.txt", "deploy/locks/local.txt"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, tmp_path / file)
    done = subprocess.run([tmp_path / "headrace", *arguments], capture_output=True, text=True, check=True)
    assert "Usage: headrace" in done.stdout
    assert not (tmp_path / ".venv").exists()


def test_a_rules_file_is_checked_without_a_stack(tmp_path: Path) -> None:
    said = CliRunner().invoke(rules_app, ["check", str(RULES)])
    assert (said.exit_code, said.output.partition(" ")[2].startswith("rules: ")) == (0, True)
    wrong = tmp_path / "rules.yaml"
    wrong.write_text(re.sub(r"field: \w+", "field: nonsense", RULES.read_text(), count=1))
    said = CliRunner().invoke(rules_app, ["check", str(wrong)])
    assert said.exit_code == 1
    assert "rules.yaml:" in said.output

"""`Clone`: a copy of the tree in which commands of `headrace` may write."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Clone:
    """A copy of what `headrace new` reads and writes."""

    root: Path

    def run(self, *command: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *command], cwd=self.root, env=self.env(env), capture_output=True, text=True, check=False
        )

    def headrace(self, *arguments: str, env: Mapping[str, str] | None = None) -> str:
        """What it prints. Raises AssertionError, with what it says, if it fails."""
        done = self.run("-c", "from deploy.cli import main; main()", *arguments, env=env)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def refusal(self, *arguments: str) -> str:
        done = self.run("-c", "from deploy.cli import main; main()", *arguments)
        assert done.returncode != 0, done.stdout
        return " ".join(done.stderr.replace("│", " ").split())

    def env(self, more: Mapping[str, str] | None) -> dict[str, str]:
        return {**os.environ, **(more or {}), "PYTHONPATH": str(self.root), "COLUMNS": "200"}

"""`ContractFiles`: a copy of the contracts' files that a test may break."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from tests import sample


class ContractFiles:
    """Topics, schemas, dimensions and examples under a folder of the test's own; nothing is released."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "contracts"
        for name in ("topics", "schemas", "dimensions", "examples"):
            ignored = shutil.ignore_patterns("*.py", "__pycache__", "released.sha256")
            shutil.copytree(sample.CONTRACTS / name, self.root / name, ignore=ignored)

    def replace(self, file: str, old: str, new: str) -> None:
        """One change in one file; the old text must stand there."""
        path = self.root / file
        text = path.read_text(encoding="utf-8")
        assert old in text, f"{file} has no {old!r}"
        path.write_text(text.replace(old, new, 1), encoding="utf-8", errors="surrogateescape")

    def schema(self, topic: str) -> Any:
        """The first schema version of a topic, to be changed and added."""
        return json.loads((self.root / "schemas" / topic / "1.avsc").read_text(encoding="utf-8"))

    def write_schema(self, topic: str, version: int, schema: Any) -> None:
        """One schema file."""
        path = self.root / "schemas" / topic / f"{version}.avsc"
        path.write_text(json.dumps(schema, indent=2), encoding="utf-8")

    def problems(self) -> list[str]:
        """What `check` says."""
        return [str(problem) for problem in sample.problems(self.root)]

"""Each mode's guarantee is told to whoever chooses."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from spark.runtime.mode import GUARANTEES, Mode

ROOT = Path(__file__).parents[3]


def test_every_mode_has_a_guarantee() -> None:
    assert set(GUARANTEES) == set(Mode)


def test_help_and_the_page_on_operations_say_what_each_mode_guarantees() -> None:
    told = subprocess.run(
        [sys.executable, "-m", "spark", "run", "--help"], cwd=ROOT, capture_output=True, check=True, text=True
    )
    shown = told.stdout.replace("-\n", "-").split()
    page = (ROOT / "docs/operations.md").read_text(encoding="utf-8")
    for mode, guarantee in GUARANTEES.items():
        assert "".join(guarantee.split()) in "".join(shown)
        assert f"| `{mode}`" in page
        assert guarantee.removeprefix("each record ") in page

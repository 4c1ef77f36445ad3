"""Each mode's guarantee is told to whoever chooses."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from contracts.definitions.pipelines import pipeline_files
from spark.runtime.mode import GUARANTEES, Mode

ROOT = Path(__file__).parents[3]


def test_every_mode_has_a_guarantee() -> None:
    assert set(GUARANTEES) == set(Mode)


def test_help_and_the_page_on_modes_say_what_each_mode_guarantees() -> None:
    told = subprocess.run(
        [sys.executable, "-m", "spark", "run", "--help"], cwd=ROOT, capture_output=True, check=True, text=True
    )
    shown = told.stdout.replace("-\n", "-").split()
    page = (ROOT / "docs/modes.md").read_text(encoding="utf-8")
    for mode, guarantee in GUARANTEES.items():
        assert "".join(guarantee.split()) in "".join(shown)
        assert f"| `{mode}`" in page
        assert guarantee.removeprefix("each record ") in page


def test_what_a_mode_can_not_do_is_refused_before_spark_starts() -> None:
    command = [sys.executable, "-m", "spark", "run", next(iter(pipeline_files())), "--mode", "real-time"]
    env = {**os.environ, "HEADRACE_LIVE__TRIGGER": "available-now"}
    told = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, check=False, text=True)
    assert (told.returncode, "real-time mode has none: leave one" in " ".join(told.stderr.split())) == (2, True)

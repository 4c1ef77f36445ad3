"""Which pipelines a stack runs: `chosen_pipelines`."""

from __future__ import annotations

from contracts.pipelines import pipeline_files
from deploy.errors import DeployError
from deploy.local.deployable import PIPELINES
from spark.runtime.mode import Mode


def chosen_pipelines(text: str | None, mode: Mode) -> tuple[str, ...]:
    """By names with commas between, or `all`; those that run by default of None. Raises DeployError."""
    known = tuple(pipeline_files())
    if text is None:
        return PIPELINES
    chosen = known if text == "all" else tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    if unknown := [name for name in chosen if name not in known]:
        raise DeployError(f"There is no pipeline {', '.join(unknown)}; there are {', '.join(known)}.")
    if mode == Mode.REAL_TIME and len(chosen) > 1:
        raise DeployError(
            "In real-time mode a process runs one pipeline, whose tasks hold their slots: name one by --pipelines, and run "
            "`python -m spark run NAME` for each other one."
        )
    return chosen

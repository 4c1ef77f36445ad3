"""`headrace test`: pytest, and the fault campaign."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from deploy.errors import DeployError

ROOT = Path(__file__).parent.parent.parent

_OF_A_SIGNAL = 128
"""A shell's exit code for a command that a signal ended, less the signal's number."""
_BY_FILE = ("--dist", "loadfile", "--no-loadscope-reorder", "--max-worker-restart", "0")
"""A process that was aborted ends the run: pytest would wait for the one in its place for ever, if the others have nothing left to do."""
_TWO = ("-n", "2", *_BY_FILE)
_THREE = ("-n", "3", *_BY_FILE)
"""Files at a time, each third with a stack of its own. Tests on the stack wait much, and leave their time on two cores to those that compute."""

Part = Literal["unit", "long", "images"]
_RUNS: dict[Part | None, tuple[str, Sequence[str]]] = {
    None: ("not campaign and not long", _THREE),
    "unit": ("not system and not campaign and not long", _TWO),
    "long": ("long", _TWO),
    "images": ("images", ()),
}
"""Of each part the marks of its tests, and how many files run at a time; None: what CI runs."""


def need_clone() -> None:
    """Raise DeployError when the tests aren't beside the code: benchmarks are among them, and the wheel leaves both out."""
    if not (ROOT / "tests" / "bench").is_dir():
        raise DeployError(
            f"There are no tests and benchmarks in {ROOT}, for the installed package leaves them out: run ./headrace in a clone of "
            "the repository."
        )


def run_tests(part: Part | None, *, expression: str | None, arguments: Sequence[str]) -> int:
    """Run one part of the tests, or those that CI runs. Returns pytest's exit code.

    `expression` is pytest's `-k`; `arguments` go to pytest as they are (`-n 0`: one test after another).
    """
    marks, side_by_side = _RUNS[part]
    command = [sys.executable, "-m", "pytest", "-m", marks, "--durations=10", "--durations-min=1"]
    command += [*side_by_side, *arguments]
    if expression is not None:
        command += ["-k", expression]
    return _run(command)


def run_short_faults(arguments: Sequence[str]) -> int:
    """Run the tests that put a few faults of the campaign on whole processes; returns pytest's exit code.

    One after another: two whole stacks under load starve each other on two cores, and what is to recover in a minute takes five. `-s`: what happens
    is told as it happens.
    """
    command = [sys.executable, "-m", "pytest", "-m", "campaign and not long", "-s", *arguments]
    return _run(command)


def run_faults(names: Sequence[str], seed: int | None, seeds: int | None, mode: str | None) -> int:
    """Run the fault campaign of `tests/faults` in a mode of `live`, or the named faults of it; returns its exit code."""
    command = [sys.executable, "-m", "tests.faults", *names]
    options = {"--seed": seed, "--seeds": seeds, "--mode": mode}
    command += [part for option, value in options.items() if value is not None for part in (option, str(value))]
    return _run(command)


def _run(command: Sequence[str]) -> int:
    """The exit code; if a signal ended the command or asked this process to end, 128 and its number.

    Ctrl-C, SIGTERM and SIGHUP are the command's own to take, which has a stack to stop.
    """
    asked = 0
    with subprocess.Popen(command, cwd=ROOT) as process:
        signal.signal(signal.SIGTERM, lambda *_: process.terminate())
        # A terminal that is closed sends it to the command as well.
        signal.signal(signal.SIGHUP, lambda *_: None)
        while True:
            try:
                code = process.wait()
            except KeyboardInterrupt:
                asked = _OF_A_SIGNAL + signal.SIGINT
            else:
                return asked or (code if code >= 0 else _OF_A_SIGNAL - code)

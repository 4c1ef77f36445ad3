"""`headrace test`: pytest, the quick part first."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import pytest

from deploy.errors import DeployError

ROOT = Path(__file__).parent.parent.parent

_OF_A_SIGNAL = 128
"""A shell's exit code for a command that a signal ended, less the signal's number."""
_BY_FILE = ("--dist", "loadfile", "--no-loadscope-reorder", "--max-worker-restart", "0")
"""A process that was aborted ends the run: pytest would wait for the one in its place for ever, if the others have nothing left to do."""
_SIDE_BY_SIDE = ("-n", "2", *_BY_FILE)
"""Two files at a time, each half with a stack of its own: one leaves half of two cores idle, waiting for Kafka and Spark."""
_FOUR = ("-n", "4", *_BY_FILE)
"""Tests on the stack wait most: three files at a time left two cores idle for a fifth of the time and more."""

Part = Literal["unit", "long", "images"]
_QUICK = ("not system and not campaign and not long", _SIDE_BY_SIDE)
_ON_THE_STACK = ("system and not campaign and not long", _FOUR)
_RUNS: dict[Part | None, Sequence[tuple[str, Sequence[str]]]] = {
    None: (_QUICK, _ON_THE_STACK),
    "unit": (_QUICK,),
    "long": (("long", _SIDE_BY_SIDE),),
    "images": (("images", ()),),
}
"""Of each part pytest's runs, by their marks, with how many files at a time; None: what CI runs."""


def need_clone() -> None:
    """Raise DeployError when the tests aren't beside the code: benchmarks are among them, and the wheel leaves both out."""
    if not (ROOT / "tests" / "bench").is_dir():
        raise DeployError(
            f"There are no tests and benchmarks in {ROOT}, for the installed package leaves them out: run ./headrace in a clone of "
            "the repository."
        )


def run_tests(part: Part | None, *, expression: str | None, arguments: Sequence[str]) -> int:
    """Run one part of the tests, or those that CI runs: the ones without processes, then the ones on the local stack. Returns the
    worse exit code.

    `expression` is pytest's `-k`; `arguments` go to pytest as they are (`-n 0`: one test after another).
    """
    worst = 0
    nothing = 0
    for marks, side_by_side in _RUNS[part]:
        command = [sys.executable, "-m", "pytest", "-m", marks, "--durations=10", "--durations-min=1"]
        command += [*side_by_side, *arguments]
        if expression is not None:
            command += ["-k", expression]
        code = _run(command)
        if code == pytest.ExitCode.INTERRUPTED or code >= _OF_A_SIGNAL:
            return code
        if code == pytest.ExitCode.NO_TESTS_COLLECTED:
            nothing += 1
        else:
            worst = max(worst, code)
    return int(pytest.ExitCode.NO_TESTS_COLLECTED) if nothing == len(_RUNS[part]) else worst


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

"""Programs of this tree and of a commit's, in turn: `trees`, `in_turn`, `compared`, `program`.

On a shared machine one run differs from the next by a tenth and more. So what is compared are the medians of runs that take turns.
"""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

from deploy.local.processes.deployable import ROOT

NOW = "now"
"""The name of this tree; the other's is its commit."""

_SEED = 1
_RunT = TypeVar("_RunT")

# A program of another tree: what `-m` finds lies in the working directory first.
_ELSEWHERE = "import os, runpy, sys; os.chdir(sys.argv.pop(1)); runpy.run_module(sys.argv.pop(1), run_name='__main__')"


class NoSuchCommit(Exception):
    """Git has no such commit here."""


@contextmanager
def trees(commit: str) -> Iterator[dict[str, Path]]:
    """Both trees by name. Raises NoSuchCommit."""
    with TemporaryDirectory(prefix="headrace-beside-") as folder:
        for words in (
            ["clone", "--quiet", "--shared", str(ROOT), folder],
            ["-C", folder, "checkout", "--quiet", commit],
        ):
            done = subprocess.run(["git", *words], capture_output=True, text=True, check=False)
            if done.returncode:
                raise NoSuchCommit(f"git has no {commit} here: {done.stderr.strip()}")
        yield {NOW: ROOT, commit: Path(folder)}


def in_turn(measure: Callable[[str, Path], None], both: Mapping[str, Path], rounds: int) -> None:
    """Measure each tree, told by name and folder, once in each round. Chance says which one comes first, with a seed of its own."""
    chance = random.Random(_SEED)
    for _ in range(rounds):
        # Whoever is always the second one would have what the first one left in the caches.
        for name in chance.sample(list(both), len(both)):
            measure(name, both[name])


def compared(
    commit: str,
    rounds: int,
    measure: Callable[[Path], Sequence[_RunT]],
    medians: Callable[[Mapping[str, Sequence[_RunT]]], Iterable[str]],
    say: Callable[[str], None],
) -> dict[str, list[_RunT]]:
    """What was measured of this tree and of the commit's, `rounds` times each, by name; each run is told by its medians. Raises NoSuchCommit."""
    found: dict[str, list[_RunT]] = {}

    def measure_tree(name: str, tree: Path) -> None:
        runs = measure(tree)
        for line in medians({name: runs}):
            say(line)
        found.setdefault(name, []).extend(runs)

    with trees(commit) as both:
        in_turn(measure_tree, both, rounds)
    return found


def program(tree: Path, words: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """The command that runs `python -m …` of a tree, and what it needs in its environment."""
    return [sys.executable, "-c", _ELSEWHERE, str(tree), *words], {"PYTHONPATH": str(tree)}

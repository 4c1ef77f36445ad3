"""Which files are the domain, by `deploy/domain.yaml`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import yaml

from deploy.local.processes.deployable import ROOT

ROOMS = ("contracts", "services", "spark", "deploy")
"""The product's."""
PATTERNS: list[str] = yaml.safe_load((ROOT / "deploy" / "domain.yaml").read_text(encoding="utf-8"))["domain"]


def is_domain(path: str) -> bool:
    """Whether a fork replaces this file; `path` is relative to the project's folder."""
    matching = [pattern for pattern in PATTERNS if fnmatchcase(path, pattern.removeprefix("!"))]
    return bool(matching) and not matching[-1].startswith("!")


def product_files(root: Path) -> Iterator[str]:
    """Every file of the product under a project's folder, relative to it."""
    yield from _files(root, ROOMS)


def files_of_tests(root: Path) -> Iterator[str]:
    """Every file of the tests, relative to the project's folder."""
    yield from _files(root, ("tests",))


def _files(root: Path, rooms: Sequence[str]) -> Iterator[str]:
    for room in rooms:
        for path in sorted((root / room).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                yield path.relative_to(root).as_posix()


def machinery_files() -> list[str]:
    """Those of the product that a fork takes as they are."""
    return [path for path in product_files(ROOT) if not is_domain(path)]


def machinery_tests() -> list[str]:
    """The files of the tests that a fork takes as they are."""
    return [path for path in files_of_tests(ROOT) if not is_domain(path)]

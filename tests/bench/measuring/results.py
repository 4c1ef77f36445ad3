"""Under which conditions a benchmark ran, and the file that its raw samples go to."""

from __future__ import annotations

import itertools
import json
import os
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

_FOLDER = Path("bench-results")


def conditions(*packages: str) -> dict[str, Any]:
    """Time, machine, Python, and the versions of these packages."""
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "machine": platform.machine(),
        **{package: version(package) for package in packages},
    }


def as_line(found: Mapping[str, Any]) -> str:
    """The conditions as they are printed."""
    return ", ".join(f"{what} {value}" for what, value in found.items())


def save_samples(
    name: str, columns: Sequence[str], rows: Iterable[Sequence[object]], say: Callable[[str], None]
) -> None:
    """Write `bench-results/<name>-<time>.csv`, one line for each sample, and say where it is."""
    lines = (",".join(map(str, row)) for row in itertools.chain([columns], rows))
    save_text(name, "csv", "\n".join(lines) + "\n", say)


def save(name: str, content: Mapping[str, Any], say: Callable[[str], None]) -> None:
    """Write `bench-results/<name>-<time>.json`, and say where it is."""
    save_text(name, "json", json.dumps(content, indent=1), say)


def save_text(name: str, suffix: str, text: str, say: Callable[[str], None]) -> None:
    """Write `bench-results/<name>-<time>.<suffix>`, and say where it is."""
    _FOLDER.mkdir(exist_ok=True)
    path = _FOLDER / f"{name}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.{suffix}"
    path.write_text(text)
    say(f"results: {path}")

"""Where downloads that all clones share are kept."""

from __future__ import annotations

import os
from pathlib import Path

from deploy.errors import DeployError


def cache_dir() -> Path:
    """`${XDG_CACHE_HOME:-~/.cache}/headrace`, made when it isn't there. Raises DeployError if it can't be written to."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    directory = Path(base) / "headrace"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        usable = os.access(directory, os.W_OK | os.X_OK)
    except OSError:
        usable = False
    if not usable:
        raise DeployError(
            f"{directory}, where downloads are kept for all clones, is no folder to write to: make it one, or name another by XDG_CACHE_HOME."
        )
    return directory

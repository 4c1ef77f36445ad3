"""Where downloads that all clones share are kept."""

from __future__ import annotations

import os
from pathlib import Path


def cache_dir() -> Path:
    """`${XDG_CACHE_HOME:-~/.cache}/headrace`, made when it isn't there."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    directory = Path(base) / "headrace"
    directory.mkdir(parents=True, exist_ok=True)
    return directory

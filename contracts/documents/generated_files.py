"""`GeneratedFiles`: what the contracts make of a folder's files, to be written or compared."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class GeneratedFiles:
    """Texts by path, relative to `folder`; any other file that matches one of `patterns` there is a left-over."""

    folder: Path
    texts: dict[Path, str]
    patterns: tuple[str, ...]

    def stale(self) -> list[Path]:
        """The paths that are missing, differ or are left over."""
        present = {path.relative_to(self.folder) for pattern in self.patterns for path in self.folder.glob(pattern)}
        return sorted(path for path in present | self.texts.keys() if self._on_disk(path) != self.texts.get(path))

    def write(self) -> list[Path]:
        """Write or remove what is stale; returns those paths."""
        changed = self.stale()
        for path in changed:
            if path in self.texts:
                (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
                (self.folder / path).write_text(self.texts[path], encoding="utf-8")
            else:
                (self.folder / path).unlink()
        return changed

    def _on_disk(self, path: Path) -> str | None:
        file = self.folder / path
        return file.read_text(encoding="utf-8") if file.exists() else None

"""The external ledger: what a producer attempted to send, and what the brokers acknowledged; written by the producer itself.

One line for each, appended by a write of its own, so that what was written before a kill -9 is there after it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path


class LedgerWriter:
    """Appends to a ledger's file."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def attempted(self, event_id: str) -> None:
        """Before it is sent: what never got so far can't be in the topic."""
        self._write(f"attempted {event_id}")

    def acknowledged(self, event_id: str, coordinate: str) -> None:
        """The brokers have it, at `coordinate`."""
        self._write(f"acknowledged {event_id} {coordinate}")

    def _write(self, line: str) -> None:
        os.write(self._file, f"{line}\n".encode())


@dataclass
class Ledger:
    """All ledgers of a folder, read as they grow."""

    folder: Path
    attempted: set[str] = field(default_factory=set)
    acknowledged: dict[str, str] = field(default_factory=dict)
    """Coordinate by event id."""
    _read: dict[Path, int] = field(default_factory=dict)

    def renew(self) -> None:
        """Take in the lines that were written since."""
        for path in sorted(self.folder.glob("*.ledger")):
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                for line in file:
                    if not line.endswith(b"\n"):
                        break
                    self._read[path] = self._read.get(path, 0) + len(line)
                    self._take(line.decode().split())

    def in_doubt(self) -> int:
        """How many were attempted and never acknowledged."""
        return len(self.attempted) - len(self.acknowledged)

    def _take(self, words: list[str]) -> None:
        if words[0] == "attempted":
            self.attempted.add(words[1])
        else:
            self.acknowledged[words[1]] = words[2]

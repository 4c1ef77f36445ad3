"""`Mentions`: how often a process's log says something, while it grows."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


class Mentions:
    """Of some words in a log; each line is read once. One that grew too long begins anew, and what it was lies beside it (`Process.bound_log`)."""

    def __init__(self, log: Path, words: str) -> None:
        self._log = log
        self._words = words.encode()
        self._read_bytes = 0
        self._found = 0

    def count(self) -> int:
        """How often they are there until now, from the log's begin on; 0 if there is none yet."""
        with suppress(FileNotFoundError):
            if self._log.stat().st_size < self._read_bytes:
                self._read(self._log.with_suffix(".log.1"))
                self._read_bytes = 0
            self._read(self._log)
        return self._found

    def _read(self, file: Path) -> None:
        with file.open("rb") as opened:
            opened.seek(self._read_bytes)
            text = opened.read()
        # The last line may be half written.
        lines = text[: text.rfind(b"\n") + 1]
        self._read_bytes += len(lines)
        self._found += lines.count(self._words)

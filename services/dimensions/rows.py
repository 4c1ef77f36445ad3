"""`Rows`: a source file's rows, of which only one is in memory."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

_ROW_CHARACTERS = 1 << 20


class Rows:
    """The rows of a CSV file one by one, `line` the last one of the row before. Raises UnicodeDecodeError, and csv.Error also for a row that is too long."""

    def __init__(self, body: bytes) -> None:
        self._text = io.TextIOWrapper(io.BytesIO(body), "utf-8-sig", newline="")
        self._left = _ROW_CHARACTERS
        self._reader = csv.reader(iter(self._next_line, ""), strict=True)

    @property
    def line(self) -> int:
        """Of the file, from 1 on; 0 before the first row."""
        return self._reader.line_num

    def __iter__(self) -> Iterator[list[str]]:
        return self

    def __next__(self) -> list[str]:
        self._left = _ROW_CHARACTERS
        return next(self._reader)

    def _next_line(self) -> str:
        line = self._text.readline(self._left + 1)
        self._left -= len(line)
        if self._left < 0:
            raise csv.Error(f"a row has more than {_ROW_CHARACTERS} characters")
        return line

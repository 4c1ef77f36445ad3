"""`Table`: the rows of one file of recorded events, kept as text."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping

Row = Mapping[str, str | None]
"""Values by column; None is a missing value."""

MISSING = frozenset({"", "NA", r"\N"})
"""How a file writes a missing value."""


class Table:
    """Rows by number, from 0, in the file's order. A table that is replayed has the column `time_hour`: the hour of each row.

    Rows are kept as lines and parsed when asked for: 336,776 rows of 19 values take 47 MB as lines, 400 MB as dicts. So a
    value must not hold a line break.
    """

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        header, *self._lines = text.splitlines()
        self._columns = _values(header)

    def __len__(self) -> int:
        return len(self._lines)

    def __iter__(self) -> Iterator[Row]:
        return map(self.row, range(len(self)))

    def column(self, name: str) -> list[str | None]:
        """The values of one column, by row number."""
        index = self._columns.index(name)
        seen: dict[str, str | None] = {missing: None for missing in MISSING}
        # Equal values are kept once.
        return [seen.setdefault(value, value) for value in (_values(line)[index] for line in self._lines)]

    def row(self, number: int) -> Row:
        """One row; values by column."""
        values = _values(self._lines[number])
        return {
            column: None if value in MISSING else value for column, value in zip(self._columns, values, strict=True)
        }


def _values(line: str) -> list[str]:
    # Splitting takes a third of the reader's time, and few lines need their quotes.
    return next(csv.reader([line])) if '"' in line else line.split(",")


def required(row: Row, column: str) -> str:
    """The value. Raises ValueError when it is missing."""
    value = row[column]
    if value is None:
        raise ValueError(f"{column} is missing")
    return value

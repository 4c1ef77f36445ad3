"""A choice among columns: `first_of`."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import Column
from pyspark.sql import functions as F


def first_of(cases: Iterable[tuple[Column, Column]]) -> Column:
    """The value of the first case, a condition and a value, that holds, else null."""
    (condition, value), *others = cases
    chosen = F.when(condition, value)
    for condition, value in others:
        chosen = chosen.when(condition, value)
    return chosen

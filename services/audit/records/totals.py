"""`Totals`: how many raw records each group of a list has, and what they add up to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from services.alerting.rules.condition import Condition
from services.audit.declared.filters import wanted
from services.audit.declared.rankings import Ranking

_OF = "__of"
_EXACT = 1 << 53

Group = tuple[Any, ...]
"""The values of the fields that are grouped by."""


class Total(NamedTuple):
    """Of one group: its `records`, and of those with a value of the field that the mean is of how many there are, and their sum."""

    records: int
    values: int = 0
    sum: int = 0

    def plus(self, other: Total) -> Total:
        """Of both."""
        return Total(self.records + other.records, self.values + other.values, self.sum + other.sum)

    @property
    def mean(self) -> float | None:
        """None where there is no value."""
        return self.sum / self.values if self.values else None

    @property
    def is_exact(self) -> bool:
        """Whether a double holds the sum, as which Spark adds."""
        return abs(self.sum) <= _EXACT


class Totals(dict[Group, Total]):
    """By group."""

    @classmethod
    def of_rows(
        cls,
        ranking: Ranking,
        condition: Condition | None,
        columns: Mapping[str, pa.Array],
        counts: npt.NDArray[np.bool_],
    ) -> Self:
        """Of the decoded rows that `counts` says."""
        if condition is not None:
            counts = counts & wanted(condition, columns, len(counts))
        by = [columns[name] for name in ranking.by]
        # Whole numbers may add up to more than 64 bits hold.
        of = [] if ranking.mean is None else [columns[ranking.mean.of].cast(pa.decimal128(38, 0))]
        table = pa.table([*by, *of], [*ranking.by, *[_OF] * len(of)]).filter(pa.array(counts))
        asked: list[tuple[Any, str]] = [([], "count_all"), *([(_OF, "count"), (_OF, "sum")] if of else [])]
        made = table.group_by(list(ranking.by)).aggregate(asked).to_pylist()
        return cls(
            {
                tuple(row[name] for name in ranking.by): Total(
                    row["count_all"], row.get(f"{_OF}_count", 0), int(row.get(f"{_OF}_sum") or 0)
                )
                for row in made
            }
        )

    @classmethod
    def joined(cls, parts: Iterable[Mapping[Group, Total]]) -> Self:
        """Of all parts together."""
        found = cls()
        for part in parts:
            for group, total in part.items():
                found[group] = found[group].plus(total) if group in found else total
        return found

    def minus(self, other: Mapping[Group, Total]) -> Totals:
        """Without these, which are part of it."""
        negative = {group: Total(*(-each for each in total)) for group, total in other.items()}
        return Totals({group: total for group, total in Totals.joined([self, negative]).items() if total.records})

    def rows(self) -> list[list[Any]]:
        """As JSON can say them."""
        return [[*group, *total] for group, total in self.items()]

    @classmethod
    def of_saved(cls, rows: Iterable[list[Any]]) -> Self:
        """What `rows` gave."""
        return cls({tuple(row[:-3]): Total(*row[-3:]) for row in rows})

"""`headrace state`: what `python -m spark state` prints, as text and as JSON. What rows hold is anybody's: nothing of it reaches a terminal unescaped."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from deploy.dead_letter_text import aligned, cut, instant, printable
from deploy.errors import DeployError
from services.alerting.rules.condition import Condition
from spark.state.summary import StateSummary

_CELL_CHARACTERS = 40


@dataclass(frozen=True, slots=True)
class Rows:
    """The first rows of a table; how many there are like these, by a condition, None if all are."""

    first: list[dict[str, Any]]
    holding: int | None


def state(printed: Iterable[str], condition: Condition | None, most: int) -> tuple[StateSummary, list[Rows]]:
    """A summary, and of each of its tables the first rows for which the condition holds. Raises DeployError if no table has a field of it."""
    lines = iter(printed)
    summary = StateSummary.model_validate_json(next(lines))
    first: list[list[dict[str, Any]]] = [[] for _ in summary.tables]
    counts = [0 for _ in summary.tables]
    for line in lines:
        number, row = json.loads(line)
        if condition is None or condition.holds(_with_instants(row, summary.tables[number].instants)):
            counts[number] += 1
            if len(first[number]) < most:
                first[number].append(row)
    there = {name for table in summary.tables for name in table.columns}
    if condition is not None and (unknown := sorted({*condition.fields} - there)):
        raise DeployError(f"the state has no {', '.join(unknown)}; it has {', '.join(sorted(there))}")
    return summary, [
        Rows(rows, None if condition is None else count) for rows, count in zip(first, counts, strict=True)
    ]


def text(summary: StateSummary, tables: list[Rows]) -> Iterator[str]:
    """The summary, then a table of each kind of rows."""
    yield f"{summary.pipeline} → {summary.topic}, run {summary.run}"
    coming = "" if summary.coming is None else f"; batch {summary.coming} is planned and not committed"
    yield f"behind batch {summary.batch}, committed {instant(summary.committed_at)}{coming}"
    if summary.watermark is None:
        yield "no watermark yet"
    else:
        yield f"watermark {instant(summary.watermark)}: what ended by then is over"
    if summary.unfit is None:
        yield "fits the pipeline of this tree"
    else:
        yield f"does not fit the pipeline of this tree: {printable(summary.unfit)}"
    yield from aligned(
        [
            ("state partition", "rows", "stored"),
            *(
                (str(each.number), f"{each.rows:,}", f"{each.stored_bytes / 1000:,.1f} kB")
                for each in summary.partitions
            ),
        ]
    )
    for table, rows in zip(summary.tables, tables, strict=True):
        holding = "" if rows.holding is None else f", the condition holds for {rows.holding:,}"
        yield ""
        yield f"{table.name}: {table.rows:,}{holding}"
        if rows.first:
            yield from aligned([table.columns, *([_cell(row[name]) for name in table.columns] for row in rows.first)])
        if more := (table.rows if rows.holding is None else rows.holding) - len(rows.first):
            yield f"… and {more:,} more: -n shows them"


def as_json(summary: StateSummary, tables: list[Rows]) -> dict[str, Any]:
    """The same, with whole values."""
    told = summary.model_dump(mode="json")
    for table, rows in zip(told["tables"], tables, strict=True):
        table |= {"first": rows.first} | ({} if rows.holding is None else {"holding": rows.holding})
    return told


def _with_instants(row: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return row | {name: datetime.fromisoformat(row[name]) for name in names if row[name] is not None}


def _cell(value: Any) -> str:
    return cut(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), _CELL_CHARACTERS)

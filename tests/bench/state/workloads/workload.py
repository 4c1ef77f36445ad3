"""`Workload`: what both engines make of a backlog, and how the rows must be."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from tests.bench.state.workloads.backlog import Backlog, Load

Row: TypeAlias = Mapping[str, object]
"""The fields of one record, instants aware."""


@dataclass(frozen=True, slots=True)
class Source:
    """A raw topic, and what Flink SQL sees of it: the `table`, and of its `columns` those that the query needs."""

    topic: str
    table: str
    columns: str


@dataclass(frozen=True, slots=True)
class Workload:
    """Work with state, over the events that `load` makes.

    `pipeline` is Headrace's, which reads the `sources` and writes `target`. The rest is the same in Flink SQL: the `columns` that it writes,
    the first of which is the key; and the query, `select`. With `updates` a key is written whenever it has changed, and its newest record
    counts; without, it is written once.

    `expected` tells the rows by key. Events before the time in a row's field `reached` are through when that row is written.
    """

    name: str
    pipeline: str
    load: Load
    sources: Sequence[Source]
    target: str
    columns: str
    select: str
    updates: bool
    expected: Callable[[Backlog], dict[str, Row]]
    reached: str

    def reached_by(self, row: Row) -> datetime:
        """Up to when all events are through, as soon as a row is written."""
        instant = row[self.reached]
        assert isinstance(instant, datetime)
        return instant

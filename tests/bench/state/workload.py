"""`Workload`: what both engines make of the backlog, and how the rows must be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from tests.bench.state.backlog import Backlog

Row: TypeAlias = Mapping[str, object]
"""The fields of one record, instants aware."""


@dataclass(frozen=True, slots=True)
class Workload:
    """Work with state.

    `pipeline` is Headrace's, which writes `target`. The rest is the same in Flink SQL: the columns that are `given` to the query by the
    table `departed`; the `columns` that it writes, the first of which is the key; and the query, `select`. With `updates` a key is written whenever it has changed, and its
    newest record counts; without, it is written once.

    `expected` tells the rows by key. `reached` is the event time up to which all events are through at the latest, by the key of a record.
    """

    name: str
    pipeline: str
    target: str
    given: str
    columns: str
    select: str
    updates: bool
    expected: Callable[[Backlog], dict[str, Row]]
    reached: Callable[[str], datetime]

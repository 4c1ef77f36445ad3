"""What is to be said of a state before its rows: `StateSummary`."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, ConfigDict


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class StatePartition(_Part):
    """How many `rows` a state partition holds, and how many `stored_bytes` its files have, those of the last batches included."""

    number: int
    rows: int
    stored_bytes: int


class StateTable(_Part):
    """Rows of one kind: groups, sessions, names of events, or those of one side of a join, by its topic. `instants` are those of its `columns` that hold a time."""

    name: str
    rows: int
    columns: tuple[str, ...]
    instants: tuple[str, ...]


class StateSummary(_Part):
    """The state of a `run` of a pipeline behind `batch`, which was `committed_at`. What ended by the `watermark` is over and gone from it.
    `coming` is a batch that is planned and not committed. `unfit` says why the pipeline of this tree can't go on with it, None if it can.
    """

    pipeline: str
    topic: str
    run: str
    batch: int
    committed_at: datetime
    coming: int | None
    watermark: datetime | None
    unfit: str | None
    partitions: tuple[StatePartition, ...]
    tables: tuple[StateTable, ...]

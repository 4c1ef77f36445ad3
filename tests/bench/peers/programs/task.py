"""`Task`: what a peer's program is told. Standard library only, because each peer imports it in an environment of its own."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Task:
    """From which topic to which, and how.

    `group` is the consumer group, `dimensions` the folder with a file of JSON lines for each dimension, `work` a folder of the
    peer's own, `jars` what its JVM needs beside its own. With `low_latency` each record counts, and its headers are carried on;
    without it the whole of a backlog counts; a peer that isn't `tuned` makes no difference. The schemas are JSON text; those of the
    target are for peers that want one to be named, and its id is that of its subject.
    """

    brokers: str
    registry: str
    source: str
    target: str
    group: str
    exactly_once: bool
    low_latency: bool
    tuned: bool
    dimensions: str
    work: str
    jars: list[str]
    source_schema: str
    target_schema: str
    target_schema_id: int

    def argument(self) -> str:
        """As the one argument of a peer's program."""
        return json.dumps(asdict(self))


def read_task() -> Task:
    """The task that this process was started with."""
    return Task(**json.loads(sys.argv[1]))


def dimension_file(folder: str | Path, name: str) -> Path:
    """The rows of a dimension, a JSON object in each line, with the columns of its contract."""
    return Path(folder) / f"{name}.jsonl"


def dimension_rows(task: Task, name: str, key: str) -> dict[str, dict[str, Any]]:
    """The rows of a dimension by their key."""
    rows = [json.loads(line) for line in dimension_file(task.dimensions, name).read_text(encoding="utf-8").splitlines()]
    return {row[key]: row for row in rows}

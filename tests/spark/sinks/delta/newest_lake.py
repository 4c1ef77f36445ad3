"""`python -m tests.spark.sinks.delta.newest_lake TAG files|commit|never BATCH`: `lake` over a test's table of newest records, killed in its Nth batch: when
the files are there, when the commit is, or never."""

from __future__ import annotations

import dataclasses
import os
import signal
import sys
from typing import Any

from contracts.definitions.topic import Lake, TopicContract
from contracts.observe import configure_logging
from contracts.settings import read_settings
from spark.queries.lake import run_lake
from spark.runtime.settings import SparkSettings
from spark.sinks.delta.lake_table import TableWriter
from tests import sample
from tests.spark.examples import DISPATCHED, renamed


def with_newest(topic: TopicContract) -> TopicContract:
    """The same, with a table of the newest record of each key."""
    assert isinstance(topic.lake_section, Lake)
    lake = topic.lake_section.model_copy(update={"rows": "newest", "partition_by": ()})
    return topic.model_copy(update={"lake_section": lake, "compacted": True})


def main() -> None:
    """Until it is killed."""
    tag, when, batch = sys.argv[1:]
    settings = read_settings(SparkSettings)
    configure_logging(settings, service="lake")
    catalog, left, commit = sample.catalog(), int(batch), TableWriter.commit

    def dying(self: TableWriter, *given: Any) -> None:
        nonlocal left
        left -= 1
        if when == "files" and not left:
            os.killpg(0, signal.SIGKILL)
        commit(self, *given)
        if when == "commit" and not left:
            os.killpg(0, signal.SIGKILL)

    TableWriter.commit = dying  # type: ignore[assignment, method-assign]
    own = with_newest(renamed(catalog, tag, [DISPATCHED])[DISPATCHED])
    run_lake(settings, dataclasses.replace(catalog, topics={**catalog.topics, DISPATCHED: own}))


if __name__ == "__main__":
    main()

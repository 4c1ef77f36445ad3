"""Where the rows of a batch go, and what they look like: `Sink`, `Route`, `outgoing`."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from contracts.records.limits import PASSED_ON_BYTES
from contracts.servers.ranges import OffsetRange
from spark.records.dead_letters import kept
from spark.records.headers import header

if TYPE_CHECKING:  # Spark's Python workers import this file, and would import boto3 by that one
    from spark.sources.checkpoint_offsets import CheckpointOffsets

PASSED_ON = {"ce_time": "ce_time", "ce_causationid": "ce_id", "traceparent": "traceparent"}
"""Headers of a derived record, and those of the raw record that they come from."""

LATE = "Late"
"""The reason of a row that goes to the late topic, and not to the dead letters."""

BRANCH = "branch"
"""The column of a branch's function that names the topic of a row."""

MOST_PARTS = 1_000
"""So many records may come of one, where several do: they lie in one transaction."""


@dataclass(frozen=True, slots=True)
class Route:
    """From which topic to which; `query` is who does it: consumer group, connector name and CloudEvents source. `filters`: not every
    record of the source comes out; `parts`: of one there may come several. `late` is the topic of those that come too late, if any do; `stateful`: what is
    made of the good ones is written before, by another sink.
    A branch has no `target`, but `branches`: names and topics.
    """

    query: str
    source: str
    target: str
    dead_letters: str
    filters: bool = False
    parts: bool = False
    late: str = ""
    stateful: bool = False
    branches: tuple[tuple[str, str], ...] = ()

    @property
    def targets(self) -> tuple[str, ...]:
        """The topics of good records."""
        return tuple(topic for _, topic in self.branches) or (self.target,)

    @property
    def ce_source(self) -> str:
        """The CloudEvents source of every derived record."""
        return f"/spark/{self.query}"

    def constant_headers(self, target: str) -> dict[str, str]:
        """Headers that are the same on every derived record of a topic."""
        return {
            "ce_type": target,
            "ce_source": self.ce_source,
            "ce_specversion": "1.0",
            "content-type": "application/avro",
        }


@dataclass(frozen=True, slots=True)
class Written:
    """What became of a batch's rows, as far as metrics tell: how many are dead letters, how many came too `late`. `oldest_ms` and `mean_ms` are of the raw records' timestamps,
    milliseconds since 1970, None without any; `unmatched` counts by lookup.
    """

    dead_letters: int
    oldest_ms: int | None
    mean_ms: float | None
    unmatched: Mapping[str, int]
    late: int = 0


ToRows = Callable[[DataFrame], DataFrame]
"""Raw records to rows of `outgoing`."""


class Sink(Protocol):
    """Takes everything of a batch, or raises.

    `keeps_checkpoint`: that of the process before tells where to go on, and is kept until a later one does.
    """

    keeps_checkpoint: bool

    def starting_offsets(self, checkpoint: CheckpointOffsets, stopping: threading.Event) -> str:
        """The `startingOffsets` of the Kafka source, before the query starts.

        A checkpoint that the sink's own position contradicts is refused (PositionsDisagree); any other tells nothing from then on.
        Raises StopRequested when `stopping` is set.
        """

    def write(self, batch: DataFrame, to_rows: ToRows, ranges: Sequence[OffsetRange]) -> Written:
        """Write what `to_rows` makes of a batch of raw records.

        The same `to_rows` gives the same plan for every batch, and may be asked only once. `ranges` are the raw offsets of the
        batch, one for each task, in order.
        """


def outgoing(
    made: DataFrame, value: Column, unmatched: Column, *, parts: bool = False, branches: bool = False
) -> DataFrame:
    """Flat rows, cheap to hand to Python: what `value` and `unmatched` are made of in, and `__reason`, `__error` and `__record`, which are
    those of `spark.records.decode`; these out.

    * `partition` int, `offset` bigint: the raw record's; `timestamp_ms` bigint: its timestamp, since 1970
    * `reason`, `error` string: null for a good record
    * `key` binary, `value` binary: those of a good record, the original bytes of a bad one, or null where its stump is all that is kept
    * one binary column for each of `PASSED_ON`
    * `headers`: the original ones of a bad record, null for a good one
    * `stump`: that of `spark.records.dead_letters.kept`; null for a good record
    * `unmatched` string: the lookups that had no row, with commas between; null for a bad record. No sink writes it
    * where `made` has `__missed`, that as `missed`: which windows a late record missed, a struct of texts, `first`, `last` and `watermark`, as
      `contracts.records.missed_windows` has them; null for another
    * with `branches`, `branch` string: the name of the branch that it goes to; null for a bad record
    * with `parts`, by `__part` and `__parts`, `part` int, `parts` string: the number of the record among those that come of the raw one, and
      how many these are; null for a bad record
    """
    is_good, bad = F.expr("__reason IS NULL"), kept(F.col("__record"))
    return made.select(
        "__record.partition",
        "__record.offset",
        F.expr("unix_millis(__record.timestamp) AS timestamp_ms"),
        F.col("__reason").alias("reason"),
        F.col("__error").alias("error"),
        F.when(is_good, F.col("__record.key")).otherwise(bad["key"]).alias("key"),
        F.when(is_good, value).otherwise(bad["value"]).alias("value"),
        *_passed_on(),
        F.when(~is_good, bad["headers"]).alias("headers"),
        F.when(is_good, unmatched).alias("unmatched"),
        F.when(~is_good, bad["stump"]).alias("stump"),
        *([F.when(is_good, F.col(BRANCH)).alias(BRANCH)] if branches else []),
        *map(
            F.expr,
            [
                *(["__part AS part", "string(__parts) AS parts"] if parts else []),
                *(["__missed AS missed"] if "__missed" in made.columns else []),
            ],
        ),
    )


@functools.cache
def _passed_on() -> list[Column]:
    # A longer one would make a record that its topic does not take.
    found = {name: header(F.col("__record.headers"), origin) for name, origin in PASSED_ON.items()}
    return [F.when(F.octet_length(value) <= PASSED_ON_BYTES, value).alias(name) for name, value in found.items()]

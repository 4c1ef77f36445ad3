"""How far a lake table has consumed its topic; the table itself says so, in its commits."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import structlog
from pyspark.sql import Column
from pyspark.sql import functions as F

from contracts.servers.ranges import OffsetRange
from spark.runtime.errors import PositionsDisagree
from spark.runtime.settings import OnDataLoss
from spark.sources.kafka import EARLIEST, starting_offsets

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Positions:
    """For each partition the offset after the last one that the table has taken in; none for an untouched partition."""

    topic: str
    next_offsets: Mapping[int, int]

    def as_json(self) -> str:
        """What a commit's `userMetadata` says, for people; what counts are the commit's transactions."""
        return json.dumps({"topic": self.topic, "positions": {str(p): n for p, n in self.next_offsets.items()}})

    def starting_offsets(self, partitions: Sequence[int]) -> str:
        """The `startingOffsets` of a Kafka source without checkpoint."""
        return starting_offsets(self.topic, {each: self.next_offsets.get(each, EARLIEST) for each in partitions})

    def after(self, ranges: Sequence[OffsetRange]) -> Positions:
        """The positions when these ranges are taken in too.

        Raises PositionsDisagree if one begins beyond the position: what lies between would be lost.
        """
        moved = dict(self.next_offsets)
        for found in ranges:
            taken = moved.get(found.partition, found.start)
            if found.start > taken:
                raise PositionsDisagree(
                    f"the table has {found.topic}/{found.partition} up to offset {taken}, but the batch begins at "
                    f"{found.start}: start again, and the table says where to go on"
                )
            moved[found.partition] = max(taken, found.end)
        return replace(self, next_offsets=moved)

    def within(self, ends: Mapping[int, tuple[int, int]], on_data_loss: OnDataLoss) -> Positions:
        """The positions where each partition can be read, whose first offset and the one after its last are its `ends`; each has one, so that the
        table's next commit says of all where they begin.

        Raises PositionsDisagree if records that the table has not are gone, unless `on_data_loss` says to go on behind them; and if a partition
        ends before the position, for its next records would be taken for those that the table has.
        """
        moved = dict(self.next_offsets)
        for partition, (low, high) in sorted(ends.items()):
            # A table that has taken in others has had this one from its first record on.
            name, taken = f"{self.topic}/{partition}", moved.setdefault(partition, 0 if self.next_offsets else low)
            if taken > high:
                raise PositionsDisagree(
                    f"{name} ends at offset {high}, and the table has its records up to {taken}: it was cut, and its next records "
                    "would be taken for those. Land the topic in a table of another name"
                )
            if taken < low:
                lost = f"{low - taken} records from offset {taken} up to {low} are gone from {name}, and the table lacks them"
                if on_data_loss == "stop":
                    raise PositionsDisagree(f"{lost}. Set HEADRACE_LAKE__ON_DATA_LOSS=continue to go on at {low}")
                _log.error("records lost", lost=lost, goes_on_at=low)
                moved[partition] = low
        return replace(self, next_offsets=moved)

    def overlap(self, ranges: Sequence[OffsetRange]) -> bool:
        """Whether the table has taken in some of the records in these ranges."""
        return any(found.start < self.next_offsets.get(found.partition, found.start) for found in ranges)

    def beyond(self) -> Column:
        """Whether a row of the Kafka source is one that the table has not taken in."""
        taken = F.lit(False)
        for partition, end in self.next_offsets.items():
            taken = taken | ((F.col("partition") == partition) & (F.col("offset") < end))
        return ~taken

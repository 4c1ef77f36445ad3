"""`StateNote`: what stands beside the offset of a state partition, in its metadata."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from contracts.servers.ranges import OffsetRange

Begins = Literal["first", "again", "group"]
"""Where a run reads from that has no checkpoint yet: the topic's first record, as the pipeline's first run or to compute everything again,
or the offsets of the pipeline's group.
"""


class Reads(BaseModel):
    """What a batch reads of all sources: hashes of the offsets at which it `starts`, and of those at which it `ends`."""

    model_config = ConfigDict(frozen=True, strict=True)

    starts: str
    ends: str

    @classmethod
    def of(cls, ranges: Iterable[OffsetRange]) -> Self:
        """`ranges` are those of all partitions, also of those of which nothing is read."""
        by_place = {f"{each.topic}/{each.partition}": each for each in ranges}
        return cls(
            starts=_hash({place: each.start for place, each in by_place.items()}),
            ends=_hash({place: each.end for place, each in by_place.items()}),
        )


def _hash(offsets: Mapping[str, int]) -> str:
    # A partition that is added meanwhile begins at 0.
    told = sorted((place, offset) for place, offset in offsets.items() if offset)
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:16]


class StateNote(BaseModel):
    """The `epoch` of the lease of who wrote; the `run`, which names the checkpoint with the state; the last `batch` of that run whose
    records are written, -1 before the first; what that batch `reads`, None where it is not known; how many state `partitions` there are; the
    `plan` of the pipeline, as a hash of what its state depends on; the ids of the `topics` that are read and written, by name, of those of which one is known.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    epoch: int = Field(ge=0)
    run: str = Field(pattern=r"^[0-9a-f]{8}$")
    batch: int = Field(ge=-1)
    partitions: int = Field(gt=0)
    begins: Begins
    plan: str
    reads: Reads | None = None
    topics: Mapping[str, str] = {}

    @property
    def offset(self) -> int:
        """The offset beside which it stands: the number of batches written."""
        return self.batch + 1

    def fits(self, batch: int, reads: Reads) -> bool:
        """Whether what was written is that batch, if it reads so, or the one before it. Batches further apart are not compared."""
        if self.reads is None or self.batch not in (batch - 1, batch):
            return True
        return self.reads == reads if self.batch == batch else self.reads.ends == reads.starts

    def made_anew(self, topics: Mapping[str, str]) -> str | None:
        """In words, which of the topics is another one by these ids; None if none is known to be."""
        for topic, now in topics.items():
            if self.topics.get(topic, now) != now:
                return f"{topic} was made anew: its id was {self.topics[topic]}, and is {now}"
        return None

    def as_metadata(self) -> str:
        """As text."""
        return self.model_dump_json()

    @classmethod
    def of(cls, metadata: str | None) -> Self | None:
        """None of what isn't ours: anybody may set a group's offsets."""
        try:
            return cls.model_validate_json(metadata or "null")
        except ValidationError:
            return None

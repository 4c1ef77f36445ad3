"""`StateNote`: what stands beside the offset of a state partition, in its metadata."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

Begins = Literal["first", "group"]
"""Where a run reads from that has no checkpoint yet: the topic's first record, or the offsets of the pipeline's group."""


class StateNote(BaseModel):
    """The `epoch` of the lease of who wrote; the `run`, which names the checkpoint with the state; the last `batch` of that run whose
    records are written, -1 before the first; how many state `partitions` there are; the `plan` of the grouping, as a hash.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    epoch: int = Field(ge=0)
    run: str = Field(pattern=r"^[0-9a-f]{8}$")
    batch: int = Field(ge=-1)
    partitions: int = Field(gt=0)
    begins: Begins
    plan: str

    @property
    def offset(self) -> int:
        """The offset beside which it stands: the number of batches written."""
        return self.batch + 1

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

"""`StateNote`: what stands beside the offset of a state partition, in its metadata."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class StateNote:
    """The `epoch` of the lease of who wrote; the `run`, which names the checkpoint with the state; the last `batch` of that run whose
    records are written, -1 before the first.
    """

    epoch: int
    run: str
    batch: int

    @property
    def offset(self) -> int:
        """The offset beside which it stands: the number of batches written."""
        return self.batch + 1

    def as_metadata(self) -> str:
        """As text."""
        return json.dumps({"epoch": self.epoch, "run": self.run, "batch": self.batch}, separators=(",", ":"))

    @classmethod
    def of(cls, metadata: str | None) -> Self | None:
        """None of what isn't ours: anybody may set a group's offsets."""
        try:
            said = json.loads(metadata or "null")
            epoch, run, batch = said["epoch"], said["run"], said["batch"]
        except (ValueError, TypeError, KeyError, RecursionError):
            return None
        is_ours = type(epoch) is int and epoch >= 0 and isinstance(run, str) and type(batch) is int and batch >= -1
        return cls(epoch, run, batch) if is_ours else None

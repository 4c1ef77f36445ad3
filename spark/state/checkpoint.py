"""Where the state of a pipeline lies, and what its checkpoint says of a batch: `StateCheckpoint`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from botocore.exceptions import BotoCoreError, ClientError

from contracts.settings import S3Settings
from spark.runtime.errors import PositionsDisagree, StateUnreadable
from spark.sinks.stateful.state_note import StateNote
from spark.sources.checkpoint_offsets import CheckpointOffsets, checkpoint_folder

Objects = Mapping[tuple[str, str], tuple[int, datetime]]
"""Bytes, and when it was written, of what lies in the checkpoints of runs, by run and path."""


@dataclass(frozen=True, slots=True)
class Committed:
    """A `batch` that a run has committed, when, and how many bytes each state partition has; `coming` is one that is planned and not committed."""

    run: str
    batch: int
    coming: int | None
    committed_at: datetime
    stored_bytes: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class StoredState:
    """The state behind a batch; the `note` of the run, None if it is lost; the watermark in milliseconds since 1970, 0 before there is one."""

    behind: Committed
    note: StateNote | None
    watermark_ms: int


class StateCheckpoint:
    """The checkpoint of a pipeline with state, in the object store. Nothing is written to it."""

    def __init__(self, s3: S3Settings, pipeline: str, topic: str) -> None:
        self._pipeline, self._endpoint = pipeline, s3.endpoint or "AWS"
        prefix = checkpoint_folder(pipeline, topic)
        self._root = f"{s3.bucket}/{prefix}"
        self._offsets = CheckpointOffsets(s3, prefix)

    def at(self, batch: int | None) -> StoredState:
        """The state behind this batch, or behind the last that was committed. Raises StateUnreadable."""
        with self._reading():
            found = committed(self._offsets.objects(), batch)
            if found is None:
                raise StateUnreadable(
                    f"{self._pipeline} has no state in s3://{self._root}: it has committed no batch here. Run it beside the others: ./headrace up "
                    f"--pipelines OTHERS,{self._pipeline}"
                )
            note = StateNote.of(self._offsets.kept_note(found.run))
            watermark_ms = self._offsets.watermark_ms(found.run, found.batch)
        return StoredState(found, note, watermark_ms)

    def copy(self, stored: StoredState, folder: Path) -> None:
        """Copy the checkpoint to a folder on this machine. Raises StateUnreadable."""
        with self._reading():
            self._offsets.copy(stored.behind.run, folder)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except (BotoCoreError, ClientError) as error:
            raise StateUnreadable(
                f"the object store at {self._endpoint} does not give the checkpoint: {error}. See that it runs, and what HEADRACE_S3__ENDPOINT, "
                "HEADRACE_S3__BUCKET and the keys say"
            ) from error
        except PositionsDisagree as error:
            raise StateUnreadable(f"{error}: the pipeline may have removed it meanwhile, so ask again") from error


def committed(objects: Objects, batch: int | None) -> Committed | None:
    """This batch, or the last one, of the run that committed last; None if none has. Raises StateUnreadable if it has not that batch."""
    planned, commits = _batches(objects, "offsets"), _batches(objects, "commits")
    if not (whole := planned.keys() & commits.keys()):
        return None
    run, _ = max(whole, key=lambda each: commits[each])
    numbers = [number for of, number in whole if of == run]
    if batch is not None and batch not in numbers:
        raise StateUnreadable(
            f"the run {run} has no batch {batch}: its checkpoint has {min(numbers)} to {max(numbers)}"
        )
    chosen = max(numbers) if batch is None else batch
    newest = max(number for of, number in planned if of == run)
    sizes = Counter[int]()
    for (of, path), (size, _) in objects.items():
        # Beside the partitions lies the operator's metadata.
        if of == run and (found := re.match(r"state/0/(\d+)/", path)):
            sizes[int(found[1])] += size
    return Committed(run, chosen, newest if newest > max(numbers) else None, commits[run, chosen], sizes)


def _batches(objects: Objects, folder: str) -> dict[tuple[str, int], datetime]:
    """When each was written, by run and number. A folder itself may be an object, too."""
    found = ((run, re.fullmatch(rf"{folder}/(\d+)", path), at) for (run, path), (_, at) in objects.items())
    return {(run, int(number[1])): at for run, number, at in found if number}

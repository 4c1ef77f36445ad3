"""How far the run has come whose groups an aggregate holds, whose pairs a join, or whose events a topic of distinct ones."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import NamedTuple

from pyarrow import fs

from contracts.settings import S3Settings
from services.audit.errors import CouldNotAudit
from services.audit.sources.broker import Broker
from services.audit.sources.s3 import file_system


class StatePosition(NamedTuple):
    """`taken`, by raw topic and partition: the offset up to which the run has its records. `watermark_ms`: which the watermark of its last batch was,
    and `begun_ms`: when the run began, milliseconds since 1970; 0 of each that nobody tells. `is_told`: not if something tells it that can't be read.
    """

    taken: Mapping[str, Mapping[int, int]]
    watermark_ms: int = 0
    begun_ms: int = 0
    is_told: bool = True


_NOWHERE, _UNREAD = StatePosition({}), StatePosition({}, is_told=False)
_TRIES = 5
"""Spark forgets the offsets of all batches but the last ones, also of one that was noted a moment ago."""


class NotedRun(NamedTuple):
    """What stands beside the positions of the first state partition: the `run`, empty where nothing does, which records that began with, and its last
    `batch`: see `spark.sinks.stateful.state_note`.
    """

    run: str = ""
    begins: str = "group"
    batch: int = -1


def noted_run(broker: Broker, pipeline: str, target: str) -> NotedRun:
    """That of the pipeline."""
    notes = broker.notes(f"{pipeline}.state", target)
    try:
        note = json.loads(notes[min(notes)])
        return NotedRun(str(note["run"]), str(note["begins"]), int(note["batch"]))
    except (ValueError, TypeError, KeyError):
        return NotedRun()


def state_position(broker: Broker, s3: S3Settings, pipeline: str, target: str) -> StatePosition | None:
    """That of the pipeline's run; None if nobody tells.

    The pipeline's own group does not tell it after a rebuild: what was set aside stays so, and that group's offsets stand still, while
    another run computes everything again. The notes beside the offsets of the group `<pipeline>.state` name the run and its last batch,
    and the checkpoint of the run says up to where that batch goes. Nowhere, if the run has written nothing, and if the checkpoint can't be read: then
    it is not `is_told`.
    """
    notes = broker.notes(f"{pipeline}.state", target)
    if not notes:
        return None
    try:
        states = int(json.loads(notes[min(notes)])["partitions"])
        # Beyond these an earlier run may have had some.
        told = [json.loads(note) for partition, note in notes.items() if partition < states]
        runs, batch = {str(each["run"]) for each in told}, min(int(each["batch"]) for each in told)
    except (ValueError, TypeError, KeyError):
        return None
    if len(runs) > 1:
        return _UNREAD
    return position_behind(s3, f"checkpoints/{pipeline}/{target}/{runs.pop()}", batch)


def told(ask: Callable[[], StatePosition | None], where: str) -> StatePosition | None:
    """The first answer that `is_told`, or None. Raises CouldNotAudit if there is none: it is not to be taken for a run that nobody knows of. `where` the
    checkpoint is.
    """
    for _ in range(_TRIES):
        if (found := ask()) is None or found.is_told:
            return found
    raise CouldNotAudit(f"{where}, in the bucket, can't be read, or its run is just beginning: audit again")


def began_at(s3: S3Settings, run: str, topic: str) -> Mapping[int, int] | None:
    """The offsets at which the run with this folder began to read a topic; None if nobody tells."""
    system, path = file_system(s3), f"{s3.bucket}/{run}/sources/0/0"
    try:
        if system.get_file_info(path).type == fs.FileType.NotFound:
            return None
        with system.open_input_stream(path) as stream:
            offsets = json.loads(stream.read().splitlines()[-1])[topic]
        return {int(partition): int(offset) for partition, offset in offsets.items()}
    except (OSError, ValueError, KeyError, AttributeError, IndexError):
        return None


def position_behind(s3: S3Settings, run: str, batch: int) -> StatePosition:
    """That of a batch, by the checkpoint in the folder of its `run`; nowhere if it can't be read, or is not there any more."""
    system, folder = file_system(s3), f"{s3.bucket}/{run}"
    path = f"{folder}/offsets/{batch}"
    if batch < 0:
        return _NOWHERE
    try:
        if system.get_file_info(path).type == fs.FileType.NotFound:
            return _UNREAD
        with system.open_input_stream(path) as stream:
            _, about, *sources = stream.read().splitlines()
        # Spark writes it once, before the first batch.
        begun = system.get_file_info(f"{folder}/metadata")
        # A source that has no record yet has a dash.
        taken = {
            topic: {int(partition): int(offset) for partition, offset in offsets.items()}
            for line in sources
            if line != b"-"
            for topic, offsets in json.loads(line).items()
        }
        at = begun.mtime_ns
        return StatePosition(
            taken, int(json.loads(about).get("batchWatermarkMs", 0)), 0 if at is None else at // 1_000_000
        )
    except (OSError, ValueError, AttributeError):
        return _UNREAD

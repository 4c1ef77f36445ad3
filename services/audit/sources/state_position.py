"""How far the run has come whose groups an aggregate holds: only to wait for it."""

from __future__ import annotations

import json

from pyarrow import fs

from contracts.settings import S3Settings
from services.audit.sources.broker import Broker
from services.audit.sources.s3 import file_system


def state_position(broker: Broker, s3: S3Settings, pipeline: str, raw: str, target: str) -> dict[int, int] | None:
    """For each partition of the raw topic the offset up to which groups have its records; None if nobody tells.

    The pipeline's own group does not tell it after a rebuild: what was set aside stays so, and that group's offsets stand still, while
    another run computes every group again. The notes beside the offsets of the group `<pipeline>.state` name the run and its last batch,
    and the checkpoint of the run says up to where that batch goes. Empty, if it can't be read: the run has written nothing, or can't go on.
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
        return {}
    folder = f"{s3.bucket}/checkpoints/{pipeline}/{target}/{runs.pop()}/offsets"
    system, path = file_system(s3), f"{folder}/{batch}"
    try:
        if batch < 0 or system.get_file_info(path).type == fs.FileType.NotFound:
            return {}
        with system.open_input_stream(path) as stream:
            offsets = json.loads(stream.read().splitlines()[-1]).get(raw, {})
        return {int(partition): int(offset) for partition, offset in offsets.items()}
    except (OSError, ValueError, IndexError, AttributeError):
        return {}

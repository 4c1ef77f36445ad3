"""The Spark checkpoint of a lake table's writer: one of its own for each, since the table itself says where to go on."""

from __future__ import annotations

from contracts.settings import S3Settings
from spark.runtime.errors import PositionsDisagree
from spark.sinks.delta.positions import Positions
from spark.sources.checkpoint_offsets import CheckpointOffsets


def new_checkpoint(s3: S3Settings, folder: str, epoch: int, positions: Positions) -> str:
    """The prefix for the checkpoint of the writer of this epoch, after removing those of others under `folder`.

    Raises PositionsDisagree if one of them has taken in more than the table: then the table is another one, or was set
    back, and somebody has to choose.
    """
    checkpoints = CheckpointOffsets(s3, folder)
    for prefix in checkpoints.folders():
        old = CheckpointOffsets(s3, prefix)
        began = old.began(positions.topic)
        for partition, offset in old.committed(positions.topic).items():
            taken = positions.next_offsets.get(partition, began.get(partition, 0))
            if offset > taken:
                raise PositionsDisagree(
                    f"the checkpoint {prefix} says that {positions.topic}/{partition} was taken in up to offset {offset}, "
                    f"but the table has it up to {taken}: remove the checkpoint to fill the table from there, or "
                    "restore the table"
                )
    checkpoints.remove()
    return f"{folder}/{epoch}"

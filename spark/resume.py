"""Where `live` goes on: what group, checkpoint and topic say, and what to do when they contradict each other."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import structlog

from contracts.s3 import s3_client
from contracts.settings import S3Settings
from spark.errors import PositionsDisagree

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

ResumeFrom = Literal["both", "group", "checkpoint"]
OnDataLoss = Literal["stop", "continue"]

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Found:
    """One partition: the group's offset and the checkpoint's, if any; its first offset and the one after its last; whether the
    target topics tell that the group had an offset once. If the group's offset is of a topic that is gone, the ids of that one and of the
    one there.
    """

    group: int | None
    checkpoint: int | None
    low: int
    high: int
    is_forgotten: bool = False
    made_anew: tuple[str, str | None] | None = None


def resume(found: Mapping[int, Found], topic: str, resume_from: ResumeFrom, on_data_loss: OnDataLoss) -> dict[int, int]:
    """The offset at which each partition is to go on.

    The group leads: a checkpoint that is older would repeat what was written, so no setting goes back to it. To go back, stop `live`
    and set the group's offsets back, as with any consumer. Raises PositionsDisagree, with what to set, if
    the checkpoint is ahead of the group, if the brokers have forgotten the group's offset, or if records that nobody has taken in
    are gone from the topic.
    """
    positions = {}
    for partition, at in sorted(found.items()):
        name = f"{topic}/{partition}"
        position = at.low if at.group is None else at.group
        if at.group is None and at.checkpoint is None and at.is_forgotten and resume_from != "group":
            raise PositionsDisagree(
                f"{name}: the consumer group has no offset, but the target topic has records that come from there: it was "
                "deleted, as with a topic that was made anew, or the brokers have forgotten it, as that of a group that committed "
                "nothing for a week. Set it with "
                f"kafka-consumer-groups, or HEADRACE_LIVE__RESUME_FROM=group to begin at {at.low} and write again what is there"
            )
        if at.checkpoint is not None and at.checkpoint > position:
            if resume_from == "both":
                raise PositionsDisagree(
                    f"{name}: the checkpoint has read up to offset {at.checkpoint}, the consumer group "
                    f"{'has no offset' if at.group is None else f'has taken in up to {at.group}'}. "
                    "Set HEADRACE_LIVE__RESUME_FROM=group to read what lies between (again, if another sink wrote it), or "
                    "=checkpoint to leave it out"
                )
            if resume_from == "checkpoint":
                position = at.checkpoint
        if at.made_anew is not None or not at.low <= position <= at.high:
            lost = (
                f"{name} was made anew: the offset {position} is of the topic with the id {at.made_anew[0]}, the one there has {at.made_anew[1]}"
                if at.made_anew is not None
                else f"{at.low - position} records from offset {position} up to {at.low} are gone from {name} unread"
                if position < at.low
                else f"{name} ends at offset {at.high}, before the {position} that were taken in: it was made anew or cut"
            )
            if on_data_loss == "stop":
                raise PositionsDisagree(f"{lost}. Set HEADRACE_LIVE__ON_DATA_LOSS=continue to go on at {at.low}")
            _log.error("records lost", lost=lost, goes_on_at=at.low)
            position = at.low
        positions[partition] = position
    return positions


def starting_offsets(topic: str, positions: Mapping[int, int]) -> str:
    """As the option of Spark's Kafka source."""
    return json.dumps({topic: {str(partition): position for partition, position in positions.items()}})


class CheckpointOffsets:
    """The offsets in a Spark query's checkpoints, read without Spark."""

    def __init__(self, s3: S3Settings, prefix: str) -> None:
        """`prefix` is a folder in the bucket, without a slash at its end: that of a checkpoint, or of several."""
        self._s3: S3Client = s3_client(s3)
        self._bucket = s3.bucket
        self._prefix = prefix

    def committed(self, topic: str) -> dict[int, int]:
        """The end offsets of the last batch that Spark has committed, of several checkpoints the furthest; empty if there is none.

        Of a damaged checkpoint, what can be read: an earlier batch, or none.
        """
        found: dict[int, int] = {}
        for folder in self.folders():
            for partition, offset in self._committed(folder, topic).items():
                found[partition] = max(found.get(partition, 0), offset)
        return found

    def folders(self) -> list[str]:
        """The folders at or below the prefix that hold a checkpoint with a batch, in the order of their numbers."""
        found = {key.partition("/offsets/")[0] for key in self._keys(self._prefix) if "/offsets/" in key}
        return sorted(found, key=lambda folder: (len(folder), folder))

    def began(self, topic: str) -> dict[int, int]:
        """The offsets at which the query began to read; empty if it never did."""
        first = f"{self._prefix}/sources/0/0"
        return self._offsets(first, topic) if first in self._keys(f"{self._prefix}/sources") else {}

    def _committed(self, folder: str, topic: str) -> dict[int, int]:
        batches = self._batches(f"{folder}/commits") & self._batches(f"{folder}/offsets")
        files = (f"{folder}/offsets/{batch}" for batch in sorted(batches)[::-1])
        return next(filter(None, (self._offsets(file, topic) for file in files)), {})

    def _offsets(self, file: str, topic: str) -> dict[int, int]:
        """By partition, from a file whose last line is those of the one source; empty if it is cut short."""
        lines = self._s3.get_object(Bucket=self._bucket, Key=file)["Body"].read().splitlines()
        try:
            return {int(partition): offset for partition, offset in json.loads(lines[-1]).get(topic, {}).items()}
        except (IndexError, ValueError) as error:
            _log.warning("checkpoint damaged", file=file, error=str(error))
            return {}

    def remove(self) -> None:
        """Remove what is below the prefix; the query then starts where it is told to."""
        for key in self._keys(self._prefix):
            self._s3.delete_object(Bucket=self._bucket, Key=key)

    def _batches(self, folder: str) -> set[int]:
        names = (key.rpartition("/")[2] for key in self._keys(folder))
        return {int(name) for name in names if name.isdigit()}

    def _keys(self, folder: str) -> list[str]:
        pages = self._s3.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=f"{folder}/")
        return [item["Key"] for page in pages for item in page.get("Contents", [])]

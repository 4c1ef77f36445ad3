"""Where `live` goes on: what group, checkpoint and topic say, and what to do when they contradict each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import structlog

from spark.runtime.errors import PositionsDisagree
from spark.runtime.settings import OnDataLoss, ResumeFrom

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Evidence:
    """What tells where to go on in one partition: the group's offset and the checkpoint's, if any; its first offset and the one after its last; whether the
    target topics tell that the group had an offset once. If what was taken in is of a topic that is gone, the ids of that one and of the
    one there.
    """

    group: int | None
    checkpoint: int | None
    low: int
    high: int
    is_forgotten: bool = False
    made_anew: tuple[str, str | None] | None = None


def resume(
    evidence: Mapping[int, Evidence], topic: str, resume_from: ResumeFrom, on_data_loss: OnDataLoss
) -> dict[int, int]:
    """The offset at which each partition is to go on.

    The group leads: a checkpoint that is older would repeat what was written, so no setting goes back to it, nor to the first records where the
    group has no offset: it may be left set. To go back, stop `live` and set the group's offsets back, as with any consumer. Raises PositionsDisagree, with what to set, if
    the checkpoint is ahead of the group, if the brokers have forgotten the group's offset, if records that nobody has taken in
    are gone from the topic, or if it ends before what was taken in.
    """
    positions = {}
    for partition, at in sorted(evidence.items()):
        name = f"{topic}/{partition}"
        position = at.low if at.group is None else at.group
        if at.group is None and at.checkpoint is None and at.is_forgotten:
            raise PositionsDisagree(
                f"{name}: the consumer group has no offset, but the target topic has records that come from there: it was "
                "deleted, as with a topic that was made anew, or the brokers have forgotten it, as that of a group that committed "
                f"nothing for a week. Set it with kafka-consumer-groups: to begin at the first record, {at.low}, writes again what is there"
            )
        if at.checkpoint is not None and at.checkpoint > position:
            if resume_from == "checkpoint":
                position = at.checkpoint
            elif at.group is None:
                raise PositionsDisagree(
                    f"{name}: the checkpoint has read up to offset {at.checkpoint}, the consumer group has no offset. Set "
                    "HEADRACE_LIVE__RESUME_FROM=checkpoint to go on there, or the group's offsets with kafka-consumer-groups to read what lies before "
                    "it, which writes it again"
                )
            elif resume_from == "both":
                raise PositionsDisagree(
                    f"{name}: the checkpoint has read up to offset {at.checkpoint}, the consumer group has taken in up to {at.group}. "
                    "Set HEADRACE_LIVE__RESUME_FROM=group to read what lies between (again, if another sink wrote it), or "
                    "=checkpoint to leave it out"
                )
        if at.made_anew is None and position > at.high:
            raise PositionsDisagree(
                f"{name} ends at offset {at.high} for readers of committed records, before the {position} up to which records were taken in: it "
                "was cut, was made anew, or has a transaction that is still open. Set the group's offset with kafka-consumer-groups: to begin at the "
                f"first record, {at.low}, writes again what is there"
            )
        if at.made_anew is not None or position < at.low:
            lost, first = _loss(name, at, position)
            if on_data_loss == "stop":
                raise PositionsDisagree(f"{lost}. {first}Set HEADRACE_LIVE__ON_DATA_LOSS=continue to go on at {at.low}")
            _log.error("records lost", lost=lost, goes_on_at=at.low)
            position = at.low
        positions[partition] = position
    return positions


def _loss(name: str, at: Evidence, position: int) -> tuple[str, str]:
    """What is gone unread from a partition, in words, and what is to be done first."""
    if at.made_anew is None:
        return f"{at.low - position} records from offset {position} up to {at.low} are gone from {name} unread", ""
    before, there = at.made_anew
    lost = f"{name} was made anew: what was taken in is of the topic with the id {before}, the one there has {there}"
    others = "the topics that are derived from it anew, for the new records get the ids of the old ones, and subscribers drop them as repeats"
    return lost, f"First make {others}. "

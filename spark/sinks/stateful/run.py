"""Which run of a query with state goes on: what positions, checkpoint and pipeline say, and what to do when they contradict each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from contracts.servers.ranges import OffsetRange
from spark.sinks.stateful.state_note import StateNote


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What the checkpoint of a run says: the last batch that was `planned`, the last that was `committed`, None where there is none; what the
    planned one reads.
    """

    run: str
    planned: int | None
    committed: int | None
    ranges: tuple[OffsetRange, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether its last batch was committed."""
        return self.planned is not None and self.planned == self.committed

    @property
    def coming(self) -> int:
        """The batch that Spark runs next: one that was planned and not committed, again."""
        after = 0 if self.committed is None else self.committed + 1
        return after if self.planned is None else max(self.planned, after)


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a run can't go on; whether the checkpoint is whole, and only the brokers have forgotten the positions."""

    run: str
    text: str
    is_forgotten: bool = False


def fault_of(
    notes: Mapping[int, StateNote],
    checkpoints: Mapping[str, Checkpoint],
    taken: Mapping[str, Mapping[int, int]],
    plan: str,
) -> Fault | None:
    """None if all fits together. `checkpoints` are by run, `taken` the offsets of the pipeline's group, by topic and partition."""
    if not notes:
        for run, found in sorted(checkpoints.items()):
            is_whole = len(checkpoints) == 1 and found.is_whole
            return Fault(
                run, f"the brokers have no positions of its state, but there is the checkpoint of a run {run}", is_whole
            )
        what = "the pipeline's group has offsets, but its state has neither positions nor a checkpoint"
        return Fault("unknown", what)
    first = next(iter(notes.values()))
    run = first.run
    if {(note.run, note.partitions) for note in notes.values()} != {(run, first.partitions)}:
        return Fault(
            run,
            f"the positions of the state are of runs that do not fit together, {', '.join(sorted({each.run for each in notes.values()}))}",
        )
    began = any(note.batch >= 0 for note in notes.values())
    at = checkpoints.get(run, Checkpoint(run, None, None))
    is_whole = at.is_whole and all(note.batch == at.committed for note in notes.values())
    if lacking := sorted({*range(first.partitions)} - notes.keys()) if began else []:
        return Fault(run, f"the positions of the state partitions {', '.join(map(str, lacking))} are gone", is_whole)
    if first.plan != plan:
        return Fault(run, f"the pipeline groups or joins otherwise than the run {run}, whose state can't go on with it")
    # A partition that has written the coming batch was cut off in it, so that it was planned.
    for partition, note in notes.items():
        if note.batch != at.coming - 1 and not (note.batch == at.coming == at.planned):
            of = "is gone" if at.planned is None else f"goes on with batch {at.coming}"
            return Fault(
                run,
                f"state partition {partition} has written batch {note.batch} of the run {run}, but its checkpoint {of}",
            )
    for each in at.ranges:
        low = each.start if at.coming == at.planned else each.end
        offset = taken.get(each.topic, {}).get(each.partition, 0)
        if not low <= offset <= each.end:
            return Fault(
                run,
                f"the pipeline's group has taken {each.topic}/{each.partition} up to offset {offset}, but the state of the run {run} "
                f"up to {low}",
                is_whole,
            )
    return None

"""Which run of a query with state goes on: what positions, checkpoint and pipeline say, and what to do when they contradict each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from contracts.servers.ranges import OffsetRange
from spark.sinks.stateful.state_note import Begins, Reads, StateNote

OTHERWISE = "groups, joins or tells events apart otherwise"
"""What a pipeline does whose state can't go on with it."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What the checkpoint of a run says: the last batch that was `planned`, the last that was `committed`, None where there is none; what the
    planned one reads; a `note` of the run, None if it is lost.
    """

    run: str
    planned: int | None
    committed: int | None
    ranges: tuple[OffsetRange, ...] = ()
    note: StateNote | None = None

    def is_whole(self, plan: str, topics: Mapping[str, str]) -> bool:
        """Whether its last batch was committed, by a pipeline with this `plan`, and of these topics."""
        return (
            self.planned is not None
            and self.planned == self.committed
            and self.note is not None
            and self.note.plan == plan
            and self.note.made_anew(topics) is None
        )

    @property
    def coming(self) -> int:
        """The batch that Spark runs next: one that was planned and not committed, again."""
        after = 0 if self.committed is None else self.committed + 1
        return after if self.planned is None else max(self.planned, after)


@dataclass(frozen=True, slots=True)
class Log:
    """What a partition of a source has: up to which offset the pipeline's group has `taken` it, its `first` offset, and the one after its last."""

    taken: int
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a run can't go on; whether the checkpoint is whole, and only the brokers have forgotten the positions."""

    run: str
    text: str
    is_forgotten: bool = False


def fault_of(
    notes: Mapping[int, StateNote],
    checkpoints: Mapping[str, Checkpoint],
    logs: Mapping[str, Mapping[int, Log]],
    plan: str,
    topics: Mapping[str, str],
    written: int,
) -> Fault | None:
    """None if all fits together. `checkpoints` are by run, `logs` by topic and partition; `topics` are the ids of those that are read, by name;
    `written` is the sum of the offsets at which the partitions of the target end; only without notes and checkpoints it counts.
    """
    if not notes:
        for run, found in sorted(checkpoints.items()):
            return Fault(
                run,
                f"the brokers have no positions of its state, but there is the checkpoint of a run {run}",
                len(checkpoints) == 1 and found.is_whole(plan, topics) and _can_be_kept(found, logs),
            )
        return _without_a_trace(logs, written)
    first = notes[min(notes)]
    # A run that had more state partitions has left notes beside those of this one.
    notes = {partition: note for partition, note in notes.items() if partition < first.partitions}
    run = first.run
    if {(note.run, note.partitions) for note in notes.values()} != {(run, first.partitions)}:
        # A choice that was cut off while it began another run still names the one before, which alone has written.
        furthest = max(notes.values(), key=lambda note: note.batch)
        return Fault(
            furthest.run,
            f"the positions of the state are of runs that do not fit together, {', '.join(sorted({each.run for each in notes.values()}))}",
        )
    if first.plan != plan:
        return Fault(run, f"the pipeline {OTHERWISE} than the run {run}, whose state can't go on with it")
    if (other := first.made_anew(topics)) is not None:
        return Fault(run, f"{other}; the state of the run {run} goes with the one before")
    began = any(note.batch >= 0 for note in notes.values())
    at = checkpoints.get(run, Checkpoint(run, None, None))
    if at.committed is not None and (at.planned is None or at.planned < at.committed):
        return Fault(
            run,
            f"the checkpoint of the run {run} has committed batch {at.committed}, and what that batch read is gone from it",
        )
    gone = _gone(at, logs)
    is_whole = at.is_whole(plan, topics) and all(note.batch == at.committed for note in notes.values())
    is_whole = is_whole and _can_be_kept(at, logs)
    if lacking := sorted({*range(first.partitions)} - notes.keys()) if began else []:
        return Fault(run, f"the positions of the state partitions {', '.join(map(str, lacking))} are gone", is_whole)
    # A partition that has written the coming batch was cut off in it, so that it was planned.
    for partition, note in notes.items():
        if note.batch != at.coming - 1 and not (note.batch == at.coming == at.planned):
            of = "is gone" if at.planned is None else f"goes on with batch {at.coming}"
            return Fault(
                run,
                f"state partition {partition} has written batch {note.batch} of the run {run}, but its checkpoint {of}",
            )
    reads = Reads.of(at.ranges)
    if at.planned is not None and not all(note.fits(at.planned, reads) for note in notes.values()):
        return Fault(
            run,
            f"batch {at.planned} of the run {run} reads other records by its checkpoint than by the positions of its state: a process that had "
            "been taken over from wrote its own plan over it",
        )
    if gone is not None:
        return Fault(run, gone)
    for each in at.ranges:
        low, taken = _needed(at, each), _log(logs, each.topic, each.partition).taken
        # A run that computes everything again is behind the group, until it is where the one before was.
        if taken < low or (taken > each.end and first.begins != "again"):
            return Fault(
                run,
                f"the pipeline's group has taken {each.topic}/{each.partition} up to offset {taken}, but the state of the run {run} "
                f"up to {low}",
                is_whole,
            )
    return None


def left_of(
    at: Checkpoint, logs: Mapping[str, Mapping[int, Log]], begins: Begins
) -> Mapping[str, Mapping[int, tuple[int, int]]]:
    """What a run has still to read, by topic and partition: the offset of the first record, and the one after the last."""
    read = {(each.topic, each.partition): _needed(at, each) for each in at.ranges}

    def start(topic: str, partition: int, log: Log) -> int:
        begin = log.taken if begins == "group" and not read else log.first
        return max(log.first, read.get((topic, partition), begin))

    return {
        topic: {partition: (start(topic, partition, log), log.end) for partition, log in partitions.items()}
        for topic, partitions in logs.items()
    }


def _without_a_trace(logs: Mapping[str, Mapping[int, Log]], written: int) -> Fault | None:
    """None if there was no run yet. Its name is lost: how much was taken and written stands for it, and is more at a later loss."""
    # A partition without an offset counts as taken up to its first record, which moves on.
    taken = sum(log.taken for of_topic in logs.values() for log in of_topic.values() if log.taken > log.first)
    shown = [
        *(["the pipeline's group has offsets"] if taken else []),
        *(["its topic has had records"] if written else []),
    ]
    if not shown:
        return None
    name = f"unknown_{written + taken}"
    return Fault(name, f"{' and '.join(shown)}, but its state has neither positions nor a checkpoint")


def _can_be_kept(at: Checkpoint, logs: Mapping[str, Mapping[int, Log]]) -> bool:
    """Whether the run of a whole checkpoint can go on, and writes nothing again: it is no older than the group, or is meant to be."""
    is_older = any(_log(logs, each.topic, each.partition).taken > each.end for each in at.ranges)
    begins_again = at.note is not None and at.note.begins == "again"
    return _gone(at, logs) is None and (begins_again or not is_older)


def _needed(at: Checkpoint, read: OffsetRange) -> int:
    """The offset from which on a run reads a partition, of which its last batch has read that."""
    return read.start if at.coming == at.planned else read.end


def _gone(at: Checkpoint, logs: Mapping[str, Mapping[int, Log]]) -> str | None:
    """In words, which records the run would have to read and can't."""
    if not at.ranges:
        return None
    # One that was added is read from its first record on.
    needed = {(topic, partition): 0 for topic, partitions in logs.items() for partition in partitions}
    needed |= {(each.topic, each.partition): _needed(at, each) for each in at.ranges}
    for (topic, partition), low in needed.items():
        log = _log(logs, topic, partition)
        if low < log.first:
            return f"the records of {topic}/{partition} from offset {low} up to {log.first} are gone, which the state of the run {at.run} lacks"
        if low > log.end:
            return (
                f"{topic}/{partition} ends at offset {log.end}, and the state of the run {at.run} has what it read up to {low}: the topic was made "
                "anew or cut"
            )
    return None


def _log(logs: Mapping[str, Mapping[int, Log]], topic: str, partition: int) -> Log:
    """Of a partition that is gone, as of one that is empty: its topic was made anew with fewer."""
    return logs.get(topic, {}).get(partition, Log(0, 0, 0))

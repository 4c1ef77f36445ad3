"""The sink of queries with state: the records of each state partition and its position in one Kafka transaction."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import prometheus_client
import structlog
from confluent_kafka import Consumer
from pyspark.sql import DataFrame

from contracts.errors import TopicUnfit
from contracts.servers.brokers import partitions_of, watermarks
from contracts.servers.ranges import OffsetRange
from contracts.settings import KafkaSettings
from spark.runtime.errors import PositionsDisagree, SinkRefused, StateLost
from spark.runtime.lifecycle import Lifecycle
from spark.sinks.kafka.exactly_once import keep_offsets
from spark.sinks.kafka.sink import Route
from spark.sinks.kafka.transaction import committed_positions, position_reader, unless_fenced
from spark.sinks.stateful.run import Checkpoint, Fault, Log, fault_of, left_of
from spark.sinks.stateful.state_note import Begins, Reads, StateNote
from spark.sinks.stateful.state_transaction import (
    StatePlan,
    batch_given,
    commit_note,
    fenced_states,
    sending,
    state_route,
)
from spark.sources.checkpoint_offsets import CheckpointOffsets

UNFIT = prometheus_client.Counter(
    "headrace_unfit_groups",
    "Groups of an aggregate, pairs of a join, records of a sequence, or distinct events, that the topic can't take as records.",
    ["query"],
)

_TIMEOUT_SECONDS = 30.0
_BEGINS = ("rebuild", "begin-anew")
"""What the settings may say of any fault: each begins another run."""
_log = structlog.get_logger(__name__)


class Begun(NamedTuple):
    """The `run` that goes on, and how many state `partitions` it has; where it reads from if it has no checkpoint; the batch that comes, and whether part of that is written."""

    run: str
    partitions: int
    begins: Begins
    coming: int
    is_begun: bool
    kept: Mapping[str, Mapping[int, int]]
    """Where the pipeline's group is to be put, by topic and partition, of a run that goes on though positions were gone."""
    left: Mapping[str, Mapping[int, tuple[int, int]]]
    """What is still to be read, by topic and partition: the offset of the first record, and the one after the last."""


class StatefulSink:
    """Writes what comes of each batch once. The note beside the positions names the run, whose checkpoint holds the state: so a checkpoint of
    another time, or none, is found out before anything is written.
    """

    def __init__(
        self,
        kafka: KafkaSettings,
        route: Route,
        sources: Sequence[str],
        partitions: int,
        plan: str,
        epoch: int,
        on_state_loss: str,
        *,
        whole: bool = False,
    ) -> None:
        """`sources` are the topics that are read. A new run has so many state `partitions`; `plan` is a hash of what the state depends on; `epoch` is that of the lease, 0 without one.
        `whole`: what comes of a batch is one list, in a topic with one partition.
        """
        self._kafka, self._epoch = kafka.client_config(), epoch
        self._then, _, self._then_of = on_state_loss.partition(":")
        self._route, self._state, self._sources, self._whole = route, state_route(route), tuple(sources), whole
        self._new = StateNote(
            epoch=epoch, run=uuid.uuid4().hex[:8], batch=-1, partitions=partitions, begins="first", plan=plan
        )
        self._note = self._new
        self.writing = threading.Lock()
        """Held while tasks write: whoever takes a position over meanwhile would fence them."""

    def begin(
        self, checkpoints: CheckpointOffsets, taken: Mapping[str, Mapping[int, int]], topics: Mapping[str, str]
    ) -> Begun:
        """Find out which run goes on, and fence whoever else writes. `taken` are the offsets of the pipeline's group, by topic and
        partition; `topics` the ids of the topics, of those of which one is known. Raises StateLost, TopicUnfit.
        """
        reader = position_reader(self._kafka, self._state)
        try:
            there = partitions_of(reader, self._route.target, _TIMEOUT_SECONDS)
            if self._whole and len(there) > 1:
                raise TopicUnfit(
                    f"{self._route.target} has {len(there)} partitions, and a list has one: delete the topic and run headrace topics create, or give the list "
                    "another topic"
                )
            logs = {topic: _logs(reader, topic, positions) for topic, positions in taken.items()}
            # Only now do the positions stand still.
            with unless_fenced(self._state), fenced_states(self._kafka, self._state, there) as producers:
                notes = self._notes(reader, there)
                # Of another run than theirs only the name counts, and part of it may have been removed.
                own = {note.run for note in notes.values()}
                runs = {
                    run: _read(checkpoints, run, self._sources) for run in checkpoints.runs() if not own or run in own
                }
                # Asked for only where nothing else is left.
                target = {} if notes or runs else _logs(reader, self._route.target, dict.fromkeys(there, 0))
                written = sum(each.end for each in target.values())
                fault = fault_of(notes, runs, logs, self._new.plan, topics, written) or self._asked_for(notes)
                if fault is None:
                    self._note = notes[min(notes)] if notes else self._new
                else:
                    self._note = self._decided(fault, runs)
                    notes = {}
                own_to_this_start = {"epoch": self._epoch, "topics": {**self._note.topics, **topics}}
                self._note = self._note.model_copy(update=own_to_this_start)
                if missing := {*range(self._note.partitions)} - {*there}:
                    raise TopicUnfit(
                        f"{self._route.target} has {len(there)} partitions, and needs one for each of {self._note.partitions} state "
                        f"partitions, {min(missing)} is missing: run `headrace topics create`"
                    )
                checkpoints.keep_note(self._note.run, self._note.as_metadata())
                stamped = {
                    partition: notes.get(partition, self._note).model_copy(update=own_to_this_start)
                    for partition in range(self._note.partitions)
                }
                for partition, note in stamped.items():
                    commit_note(producers[partition], reader, self._state, partition, note)
        finally:
            reader.close()
        at = runs.get(self._note.run, Checkpoint(self._note.run, None, None))
        is_begun = any(note.batch == at.coming for note in stamped.values())
        # A run that computes everything again is behind what was set aside before.
        kept = {
            topic: {
                each.partition: max(each.end, taken[topic].get(each.partition, 0))
                for each in at.ranges
                if each.topic == topic and fault is not None
            }
            for topic in self._sources
        }
        left = left_of(at, logs, self._note.begins)
        return Begun(self._note.run, self._note.partitions, self._note.begins, at.coming, is_begun, kept, left)

    def _asked_for(self, notes: Mapping[int, StateNote]) -> Fault | None:
        """A run that the settings name is not gone on with, though nothing is known to be wrong: that its state can't be read is found out by Spark alone."""
        run = self._then_of
        is_asked_for = self._then in _BEGINS and bool(notes) and notes[min(notes)].run == run
        return Fault(run, f"the settings say that the run {run} is not gone on with") if is_asked_for else None

    def _decided(self, fault: Fault, runs: Mapping[str, Checkpoint]) -> StateNote:
        """The first note of the run to go on with. Raises StateLost unless the settings say what to do about this very fault."""
        then, run = self._then, self._then_of
        if run != fault.run or then not in (*_BEGINS, *(["keep"] if fault.is_forgotten else [])):
            kept = f", =keep:{fault.run} to go on with its state" if fault.is_forgotten else ""
            raise StateLost(
                f"{fault.text}. Set HEADRACE_LIVE__ON_STATE_LOSS=rebuild:{fault.run} to compute everything again from the first record that "
                f"{' and '.join(self._sources)} still {'has' if len(self._sources) == 1 else 'have'}, which writes everything again{kept}, or "
                f"=begin-anew:{fault.run} to go on with the next records, which knows nothing of what came before"
            )
        _log.error("state lost", query=self._route.query, lost=fault.text, then=then)
        if then == "keep":
            first = runs[run].note or self._new
            return first.model_copy(update={"batch": runs[run].committed, "reads": None})
        return self._new.model_copy(update={"begins": "again" if then == "rebuild" else "group"})

    def write(
        self, batch: DataFrame, to_rows: Callable[[DataFrame], DataFrame], batch_id: int, ranges: Sequence[OffsetRange]
    ) -> list[int]:
        """Send what `to_rows` makes of a batch: `key`, `value`, `ce_time`, `id`, `fault`. `ranges` are what it reads, of all partitions.
        The state partitions, each of which has its part.

        Raises SinkRefused if a task found that writing would lose or double records.
        """
        note = self._note.model_copy(update={"reads": Reads.of(ranges)})
        plan = StatePlan(self._kafka, self._route, note, self._whole)
        with self.writing, batch_given(batch.sparkSession.sparkContext, batch_id):
            # Not `collect`: a result that is cut short would be taken for the whole.
            found = sending(to_rows(batch), plan).toArrow().column(0).to_pylist()
        results = [json.loads(str(text)) for text in found]
        if refusals := [result["refused"] for result in results if result["refused"] is not None]:
            raise SinkRefused("; ".join(refusals))
        if skipped := sum(result["skipped"] for result in results):
            _log.info("skipped what was written before", query=self._route.query, batch=batch_id, records=skipped)
        if unfit := sum(result["unfit"] for result in results):
            UNFIT.labels(self._route.query).inc(unfit)
            first = next(result["first_fault"] for result in results if result["unfit"])
            _log.error(
                "left out what can't be a record: change the function or the schema",
                query=self._route.query,
                records=unfit,
                first=first,
            )
        return sorted(result["partition"] for result in results)

    def keep_offsets(self, lifecycle: Lifecycle) -> None:
        """Commit the positions again every hour, until it is stopping: brokers forget those that nobody renews for days."""
        keep_offsets(lifecycle, self._state.query, self.writing, self.renew_offsets)

    def renew_offsets(self) -> None:
        """Commit every position of the state again, each in a transaction of its partition's own producer."""
        reader = position_reader(self._kafka, self._state)
        try:
            for partition in range(self._note.partitions):
                with fenced_states(self._kafka, self._state, [partition]) as producers:
                    for note in self._notes(reader, [partition]).values():
                        commit_note(producers[partition], reader, self._state, partition, note)
        finally:
            reader.close()

    def _notes(self, reader: Consumer, partitions: Sequence[int]) -> Mapping[int, StateNote]:
        found = committed_positions(reader, self._route.target, partitions)
        notes = {partition: StateNote.of(at.metadata) for partition, at in found.items()}
        return {partition: note for partition, note in notes.items() if note is not None}


def _read(checkpoints: CheckpointOffsets, run: str, topics: Sequence[str]) -> Checkpoint:
    planned, committed = checkpoints.last(run)
    note = StateNote.of(checkpoints.kept_note(run))
    try:
        ranges = [] if planned is None else checkpoints.planned(run, planned, topics)[0]
    except PositionsDisagree as error:
        _log.error("checkpoint damaged", run=run, error=str(error))
        return Checkpoint(run, None, None, (), note)
    found = Checkpoint(run, planned, committed, tuple(ranges), note)
    partitions = range(note.partitions) if note is not None and found.coming > 0 else ()
    if gone := [each for each in partitions if not checkpoints.has_state(run, each, found.coming)]:
        damage = f"the state of partition {gone[0]} after batch {found.coming - 1} is gone"
        _log.error("checkpoint damaged", run=run, error=damage)
        return Checkpoint(run, None, None, (), note)
    return found


def _logs(reader: Consumer, topic: str, taken: Mapping[int, int]) -> Mapping[int, Log]:
    ends = {partition: watermarks(reader, topic, partition, _TIMEOUT_SECONDS) for partition in taken}
    return {partition: Log(taken[partition], *ends[partition]) for partition in taken}

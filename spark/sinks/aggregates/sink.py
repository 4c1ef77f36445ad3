"""The sink of aggregates: the records of each state partition and its position in one Kafka transaction."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable, Mapping

import prometheus_client
import structlog
from confluent_kafka import Consumer
from pyspark.sql import DataFrame

from contracts.servers.brokers import partitions_of
from contracts.settings import KafkaSettings
from spark.runtime.errors import SinkRefused, StateLost, TakenOver
from spark.runtime.lifecycle import Lifecycle
from spark.runtime.settings import OnStateLoss
from spark.sinks.aggregates.state_note import StateNote
from spark.sinks.aggregates.state_transaction import (
    StatePlan,
    batch_given,
    commit_note,
    fenced_states,
    sending,
    state_route,
)
from spark.sinks.kafka.exactly_once import keep_offsets
from spark.sinks.kafka.sink import Route
from spark.sinks.kafka.transaction import committed_positions, position_reader
from spark.sources.checkpoint_offsets import CheckpointOffsets

UNFIT = prometheus_client.Counter(
    "headrace_unfit_groups", "Groups of an aggregate that its topic can't take as records.", ["query"]
)

_TIMEOUT_SECONDS = 30.0
_log = structlog.get_logger(__name__)


class Aggregates:
    """Writes what comes of each batch once. The note beside the positions names the run, whose checkpoint holds the state: so a checkpoint of
    another time, or none, is found out before anything is written.
    """

    def __init__(self, kafka: KafkaSettings, route: Route, epoch: int, on_state_loss: OnStateLoss) -> None:
        """`epoch` is that of the lease, 0 without one."""
        self._kafka, self._epoch, self._on_state_loss = kafka.client_config(), epoch, on_state_loss
        self._route, self._state = route, state_route(route)
        self._run = ""
        self._writing = threading.Lock()

    def begin(self, checkpoints: CheckpointOffsets, prefix: str) -> tuple[str, bool]:
        """The run to go on with, and whether it is a new one that reads from the first record on; `prefix` is the folder of its checkpoint's.

        Fences whoever else writes. Raises StateLost, TakenOver.
        """
        reader = position_reader(self._kafka, self._state)
        try:
            partitions = partitions_of(reader, self._route.target, _TIMEOUT_SECONDS)
            with fenced_states(self._kafka, self._state, partitions) as producers:
                notes = self._notes(reader, partitions)
                if (newest := max((note.epoch for note in notes.values()), default=0)) > self._epoch:
                    raise TakenOver(
                        f"another process has taken {self._route.query} over (epoch {newest} of the lease, this one has {self._epoch}): "
                        "this one stops"
                    )
                fault = _fault(notes, partitions, checkpoints, prefix)
                self._run = next((note.run for note in notes.values()), "")
                if fault is None and notes:
                    return self._run, False
                if fault is not None and self._on_state_loss == "stop":
                    raise StateLost(
                        f"{fault}. Set HEADRACE_LIVE__ON_STATE_LOSS=rebuild to compute everything again from the first record that the topic "
                        f"{self._route.source} still has, which writes every group again, or =begin-anew to go on with the next records, "
                        "where groups that are open lack what came before"
                    )
                if fault is not None:
                    _log.error("state lost", query=self._route.query, lost=fault, then=self._on_state_loss)
                self._run = uuid.uuid4().hex[:8]
                for partition in partitions:
                    note = StateNote(self._epoch, self._run, -1)
                    commit_note(producers[partition], reader, self._state, partition, note)
        finally:
            reader.close()
        return self._run, fault is None or self._on_state_loss == "rebuild"

    def write(self, batch: DataFrame, to_rows: Callable[[DataFrame], DataFrame], batch_id: int) -> int:
        """Send what `to_rows` makes of a batch: `key`, `value`, `ce_time`, `fault`. How many records that were.

        Raises SinkRefused if a task found that writing would lose or double records.
        """
        plan = StatePlan(self._kafka, self._route, self._epoch, self._run)
        with self._writing, batch_given(batch.sparkSession.sparkContext, batch_id):
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
            _log.error("groups that can't be records were left out", query=self._route.query, groups=unfit, first=first)
        return sum(result["sent"] for result in results)

    def keep_offsets(self, lifecycle: Lifecycle) -> None:
        """Commit the positions again every hour, until it is stopping: brokers forget those that nobody renews for days."""
        keep_offsets(lifecycle, self._state.query, self._writing, self.renew_offsets)

    def renew_offsets(self) -> None:
        """Commit every position of the state again, each in a transaction of its partition's own producer."""
        reader = position_reader(self._kafka, self._state)
        try:
            partitions = partitions_of(reader, self._route.target, _TIMEOUT_SECONDS)
            with fenced_states(self._kafka, self._state, partitions) as producers:
                for partition, note in self._notes(reader, partitions).items():
                    commit_note(producers[partition], reader, self._state, partition, note)
        finally:
            reader.close()

    def _notes(self, reader: Consumer, partitions: list[int]) -> Mapping[int, StateNote]:
        found = committed_positions(reader, self._route.target, partitions)
        notes = {partition: StateNote.of(at.metadata) for partition, at in found.items()}
        return {partition: note for partition, note in notes.items() if note is not None}


def _fault(
    notes: Mapping[int, StateNote], partitions: list[int], checkpoints: CheckpointOffsets, prefix: str
) -> str | None:
    """Why positions and checkpoints do not fit together; None if they do, or if there is neither."""
    if not notes:
        left = checkpoints.folders()
        return f"there is a checkpoint, {left[-1]}, and the group has no positions of its state" if left else None
    runs = {note.run for note in notes.values()}
    if len(runs) > 1 or notes.keys() != {*range(len(notes))} or not notes.keys() <= {*partitions}:
        return f"the positions of the state are of the runs {', '.join(sorted(runs))}, at partitions {', '.join(map(str, sorted(notes)))}"
    (run,) = runs
    planned, committed = checkpoints.last(f"{prefix}/{run}")
    after_commit = 0 if committed is None else committed + 1
    coming = after_commit if planned is None else max(planned, after_commit)
    # A partition that has written the coming batch was cut off in it, so that it was planned.
    for partition, note in notes.items():
        if note.batch != coming - 1 and not (note.batch == coming == planned):
            return (
                f"state partition {partition} has written batch {note.batch} of the run {run}, and its checkpoint {prefix}/{run} "
                f"{'is gone' if planned is None else f'goes on with batch {coming}'}"
            )
    return None

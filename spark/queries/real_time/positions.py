"""Where `live` goes on in real-time mode: the group's offsets, and what the target topics hold beyond them."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from contracts.servers.brokers import partitions_of
from spark.runtime.errors import PositionsTooLong
from spark.runtime.settings import SparkSettings
from spark.sinks.kafka.offset_note import Mark, OffsetNote
from spark.sinks.kafka.resume import resume
from spark.sinks.kafka.sink import Route
from spark.sinks.kafka.source_partition import SourcePartition, pass_gaps
from spark.sinks.kafka.succession import check_epoch, wait_for_predecessor
from spark.sinks.kafka.tail import Taken, mark, positions_of, raw_reader, read_known
from spark.sinks.kafka.transaction import committed_positions, fence, note_of, position_reader
from spark.sources.checkpoint_offsets import CheckpointOffsets
from spark.sources.source_topic import topic_id

_TIMEOUT_SECONDS = 30.0
_RUNNING_SECONDS = 5.0
"""Shorter while a query runs: whoever commits has others to look at."""
_GAP_SECONDS = 0.5


class RealTimePositions:
    """The group's offsets, each with the mark from which the target topics are to be read beyond it. Close it."""

    def __init__(
        self,
        settings: SparkSettings,
        route: Route,
        checkpoint: CheckpointOffsets,
        epoch: int,
        notice_seconds: float = 0.0,
    ) -> None:
        """`checkpoint` is of the modes that have one; from here on it tells nothing. `epoch` is that of the lease, `notice_seconds` how long
        its last holder may go on.
        """
        self._settings = settings
        self._epoch = epoch
        self._notice_seconds = notice_seconds
        self._route = route
        self._reader = position_reader(settings.kafka.client_config(), route)
        self._raw = raw_reader(settings.kafka, route)
        self._checkpoint = checkpoint
        self._has_taken_over = False
        self.topic_id: str | None = None
        """The source's, when it was found out where to go on."""
        self._taken: dict[int, Taken] = {}
        self._committed: dict[int, int] = {}

    def close(self) -> None:
        """Close the connections."""
        self._reader.close()
        self._raw.close()

    def take_up(self, stopping: threading.Event) -> dict[int, Taken]:
        """Find out where each partition goes on, and commit that. The first time it fences whoever writes exactly once, and removes the checkpoint. No query of this
        process may run.

        Raises PositionsDisagree if the checkpoint is ahead, or records that nobody has taken in are gone from the topic, TakenOver if
        another process has taken over, and StopRequested.
        """
        topic = self._route.source
        partitions = partitions_of(self._reader, topic, _TIMEOUT_SECONDS)
        checkpoint: dict[int, int] = {}
        other: str | None = None
        if self._has_taken_over:
            self._check_epoch(partitions, _TIMEOUT_SECONDS)
        else:
            checkpoint, other = self._take_over(partitions, stopping)
        # Before reading the tail: what a query that has just ended still sends lies behind this mark.
        before = mark(self._reader, self._route)
        live = self._settings.live
        known = read_known(self._settings.kafka, self._route, self._reader, partitions, live.on_data_loss, stopping)
        evidence = {p: known.evidence(self._reader, topic, p, checkpoint.get(p), other) for p in partitions}
        self.topic_id = known.topic_id
        positions = resume(evidence, topic, live.resume_from, live.on_data_loss)
        result = self._past_gaps(known.taken_at(positions))
        # Another process may have taken over while the tail was read.
        self.commit({partition: replace(each, mark=each.mark or before) for partition, each in result.items()})
        self._taken = result
        self._committed = positions_of(result)
        if not self._has_taken_over:
            self._checkpoint.remove()
            self._has_taken_over = True
        return result

    def leave(self, seconds: float) -> None:
        """Commit how far it came, for those who watch the group; nothing if it never found out where to begin. Raises as `take_up`; after so many seconds it
        begins nothing more, and raises StopRequested, but a broker may keep it for longer.
        """
        if not self._has_taken_over:
            return
        late = threading.Event()
        timer = threading.Timer(seconds, late.set)
        timer.start()
        try:
            self.take_up(late)
        finally:
            timer.cancel()

    def commit_interval(self, positions: Mapping[int, int], before: Mark) -> None:
        """Commit the end of an interval; `before` is of a moment when the interval hadn't ended yet.

        The mark by which records were found that had been written ahead stays until the position is beyond them. Raises as `commit`.
        """
        further = {p: Taken(max(at, self._committed.get(p, 0))) for p, at in positions.items()}
        positions = self._committed = positions_of(self._past_gaps(further))
        found = {p: self._taken[p].mark_at(at) if p in self._taken else None for p, at in positions.items()}
        self.commit({partition: Taken(at, mark=found[partition] or before) for partition, at in positions.items()})

    def added(self) -> list[int]:
        """The source topic's partitions that it did not have at the last `take_up`."""
        there = partitions_of(self._reader, self._route.source, _RUNNING_SECONDS)
        return [partition for partition in there if partition not in self._taken]

    def commit(self, taken: Mapping[int, Taken]) -> None:
        """Commit positions with their marks.

        Raises TakenOver if another process has taken over: its offsets are not ours to move; PositionsTooLong.
        """
        self._check_epoch(list(taken), _RUNNING_SECONDS)
        notes = {p: OffsetNote(self._epoch, each.mark, self.topic_id) for p, each in taken.items()}
        self._commit(positions_of(taken), notes)

    def _past_gaps(self, taken: Mapping[int, Taken]) -> dict[int, Taken]:
        """The same, moved past offsets that are no records, of partitions that tell soon. Behind the last record there may be a marker, and retention may take that:
        a position before it would seem to have lost a record.
        """
        sources = {p: SourcePartition(each.position, each.beyond) for p, each in taken.items()}
        pass_gaps(self._raw, self._route.source, sources, _GAP_SECONDS)
        return {p: each.at(sources[p].position) for p, each in taken.items()}

    def _check_epoch(self, partitions: Sequence[int], seconds: float) -> None:
        committed = committed_positions(self._reader, self._route.source, partitions, seconds)
        check_epoch(committed, self._route, self._epoch)

    def _take_over(self, partitions: Sequence[int], stopping: threading.Event) -> tuple[dict[int, int], str | None]:
        """Leave the epoch with every position, so that nobody who slept through this begins to write exactly once."""
        before = mark(self._reader, self._route)
        while True:
            fence(self._settings.kafka.client_config(), self._route, partitions)
            committed = committed_positions(self._reader, self._route.source, partitions)
            if all(note_of(at).epoch == self._epoch for at in committed.values()):
                wait_for_predecessor(committed, self._notice_seconds, stopping)
                source = self._route.source
                return self._checkpoint.committed_of(source, topic_id(self._settings.kafka, source))
            # Whoever has begun since the fence found no epoch: what it commits lies behind the mark, and the next fence ends it.
            notes = {partition: note_of(at) for partition, at in committed.items()}
            own = {p: replace(note, epoch=self._epoch, mark=note.mark or before) for p, note in notes.items()}
            self._commit({partition: at.offset for partition, at in committed.items()}, own)

    def _commit(self, positions: Mapping[int, int], notes: Mapping[int, OffsetNote]) -> None:
        offsets = [
            TopicPartition(self._route.source, partition, position, notes[partition].as_metadata())
            for partition, position in positions.items()
        ]
        try:
            # The client raises what is wrong with all of them.
            for failure in (each.error for each in self._reader.commit(offsets=offsets, asynchronous=False) or ()):
                if failure is not None:
                    raise KafkaException(failure)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.OFFSET_METADATA_TOO_LARGE:
                raise
            raise PositionsTooLong(
                f"the brokers refuse the positions of {self._route.query}: each carries the ends of all partitions of "
                f"{', '.join(self._route.targets)} and {self._route.dead_letters}, {max(len(note.as_metadata()) for note in notes.values())} bytes. "
                "Raise offset.metadata.max.bytes on every broker (4096 by default), or use another mode than real-time"
            ) from error

"""Where `live` goes on in real-time mode: the group's offsets, and what the target topics hold beyond them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from confluent_kafka import TopicPartition

from contracts.brokers import partitions_of
from spark.resume import CheckpointOffsets, find_positions, resume
from spark.settings import SparkSettings
from spark.sink import Route
from spark.tail import Mark, Taken, mark, read_tail, written_without_offset
from spark.transaction import committed_positions, epoch_of, fence, position_reader

_TIMEOUT_SECONDS = 30.0


class RealTimePositions:
    """The group's offsets, each with the mark from which the target topics are to be read beyond it. Close it."""

    def __init__(self, settings: SparkSettings, route: Route, checkpoint: CheckpointOffsets, epoch: int) -> None:
        """`checkpoint` is of the modes that have one; from here on it tells nothing. `epoch` is that of the lease."""
        self._settings = settings
        self._epoch = epoch
        self._route = route
        self._reader = position_reader(settings.kafka.client_config(), route)
        self._checkpoint = checkpoint
        self._alone = False

    def close(self) -> None:
        """Close the connections."""
        self._reader.close()

    def find(self) -> dict[int, Taken]:
        """Every partition's, and commit them. Fences whoever writes exactly once. Nobody may write in real-time mode.

        Raises PositionsDisagree if the checkpoint is ahead, or records that nobody has taken in are gone from the topic.
        """
        topic = self._route.source
        partitions = partitions_of(self._reader, topic, _TIMEOUT_SECONDS)
        checkpoint = {} if self._alone else self._take_over(partitions)
        # Before reading the tail: what a query that has just ended still sends lies behind this mark.
        before = mark(self._reader, self._route)
        committed = committed_positions(self._reader, topic, partitions)
        taken = read_tail(self._settings.kafka, self._route, committed)
        live = self._settings.live
        forgotten = written_without_offset(self._settings.kafka, self._route, partitions, committed)
        found = find_positions(self._reader, topic, partitions, taken, checkpoint, forgotten)
        positions = resume(found, topic, live.resume_from, live.on_data_loss)
        result = {
            partition: taken[partition]
            if partition in taken and taken[partition].position == position
            else Taken(position)
            for partition, position in positions.items()
        }
        self._commit(positions, {partition: each.mark or before for partition, each in result.items()})
        if not self._alone:
            self._checkpoint.remove()
            self._alone = True
        return result

    def commit(self, positions: Mapping[int, int], before: Mark) -> None:
        """Commit the end of an interval; `before` is of a moment when the interval hadn't ended yet."""
        self._commit(positions, dict.fromkeys(positions, before))

    def _take_over(self, partitions: Sequence[int]) -> dict[int, int]:
        """Leave the epoch with every position, so that nobody who slept through this begins to write exactly once."""
        before = mark(self._reader, self._route)
        while True:
            fence(self._settings.kafka.client_config(), self._route, partitions)
            committed = committed_positions(self._reader, self._route.source, partitions)
            if all(epoch_of(at.metadata) == self._epoch for at in committed.values()):
                return self._checkpoint.committed(self._route.source)
            # Whoever has begun since the fence found no epoch: what it commits lies behind the mark, and the next fence ends it.
            marks = {partition: Mark.of(at.metadata) or before for partition, at in committed.items()}
            self._commit({partition: at.offset for partition, at in committed.items()}, marks)

    def _commit(self, positions: Mapping[int, int], marks: Mapping[int, Mark]) -> None:
        offsets = [
            TopicPartition(self._route.source, partition, position, marks[partition].as_metadata(self._epoch))
            for partition, position in positions.items()
        ]
        self._reader.commit(offsets=offsets, asynchronous=False)

"""Where `live` goes on in real-time mode: the group's offsets, and what the target topics hold beyond them."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import TopicPartition

from spark.resume import CheckpointOffsets, find_positions, resume
from spark.settings import SparkSettings
from spark.sink import Route
from spark.tail import Mark, Taken, mark, read_tail
from spark.transaction import committed_positions, position_reader, transactional_producer


class RealTimePositions:
    """The group's offsets, each with the mark from which the target topics are to be read beyond it. Close it."""

    def __init__(self, settings: SparkSettings, route: Route, checkpoint: CheckpointOffsets) -> None:
        """`checkpoint` is of the modes that have one; from here on it tells nothing."""
        self._settings = settings
        self._route = route
        self._reader = position_reader(settings.kafka.client_config(), route)
        self._checkpoint = checkpoint
        self._fenced = False

    def close(self) -> None:
        """Close the connections."""
        self._reader.close()

    def find(self) -> dict[int, Taken]:
        """Every partition's, and commit them. Fences whoever writes exactly once. Nobody may write in real-time mode.

        Raises PositionsDisagree if the checkpoint is ahead, or records that nobody has taken in are gone from the topic.
        """
        topic = self._route.source
        partitions = sorted(self._reader.list_topics(topic, timeout=30).topics[topic].partitions)
        if not self._fenced:
            for partition in partitions:
                transactional_producer(self._settings.kafka.client_config(), self._route, partition).close()
            self._fenced = True
        committed = committed_positions(self._reader, topic, partitions)
        taken = read_tail(self._settings.kafka, self._route, committed)
        group = {partition: taken[partition].position if partition in taken else None for partition in partitions}
        live = self._settings.live
        found = find_positions(self._reader, topic, group, self._checkpoint.committed(topic))
        positions = resume(found, topic, live.resume_from, live.on_data_loss)
        result = {
            partition: taken[partition]
            if partition in taken and taken[partition].position == position
            else Taken(position)
            for partition, position in positions.items()
        }
        now = mark(self._reader, self._route).as_metadata()
        self._commit(positions, {partition: each.metadata or now for partition, each in result.items()})
        self._checkpoint.remove()
        return result

    def commit(self, positions: Mapping[int, int], before: Mark) -> None:
        """Commit the end of an interval; `before` is of a moment when the interval hadn't ended yet."""
        self._commit(positions, dict.fromkeys(positions, before.as_metadata()))

    def _commit(self, positions: Mapping[int, int], metadata: Mapping[int, str]) -> None:
        offsets = [
            TopicPartition(self._route.source, partition, position, metadata[partition])
            for partition, position in positions.items()
        ]
        self._reader.commit(offsets=offsets, asynchronous=False)

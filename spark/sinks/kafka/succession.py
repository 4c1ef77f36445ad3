"""`Succession`: by what a process that is cut off from the object store learns that another has taken over.

The lease lies in the object store, records and positions with the brokers: so a successor leaves its epoch beside the group's
offsets, where its predecessor finds it as long as it can write at all.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace

import structlog
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from contracts.servers.brokers import partitions_of
from contracts.settings import KafkaSettings
from spark.runtime.errors import StopRequested, TakenOver
from spark.runtime.lease import Lease
from spark.sinks.kafka.sink import Route
from spark.sinks.kafka.transaction import commit_position, committed_positions, note_of, position_reader

_LOOK_SECONDS = 1.0
_TIMEOUT_SECONDS = 5.0

_log = structlog.get_logger(__name__)


class Succession:
    """Of the process that has `lease`."""

    def __init__(self, kafka: KafkaSettings, route: Route, lease: Lease) -> None:
        self._kafka, self._route, self._lease = kafka.client_config(), route, lease

    @contextmanager
    def watched(self, end: Callable[[], object]) -> Iterator[None]:
        """While this lasts, and the lease is overdue, look every second for a successor; if there is one, tell of it and call `end`.

        In a thread of its own: any other may be waiting for the object store.
        """
        done = threading.Event()
        thread = threading.Thread(target=self._watch, args=[done, end], name="succession", daemon=True)
        thread.start()
        try:
            yield
        except TakenOver as error:
            # Spark's producers would go on while it stops.
            _end(error, end)
            raise
        finally:
            done.set()

    def _watch(self, done: threading.Event, end: Callable[[], object]) -> None:
        while not done.wait(_LOOK_SECONDS):
            if not self._lease.is_overdue:
                continue
            try:
                with closing(position_reader(self._kafka, self._route)) as reader:
                    partitions = partitions_of(reader, self._route.source, _TIMEOUT_SECONDS)
                    asked = [TopicPartition(self._route.source, partition) for partition in partitions]
                    found = {at.partition: at for at in reader.committed(asked, timeout=_TIMEOUT_SECONDS)}
                check_epoch(found, self._route, self._lease.epoch)
            except TakenOver as error:
                _end(error, end)
                return
            except KafkaException as error:
                _log.warning("no look for a successor", query=self._route.query, error=str(error))


def _end(error: TakenOver, end: Callable[[], object]) -> None:
    _log.error("stopped by a failure", reason=str(error))
    end()


def check_epoch(committed: Mapping[int, TopicPartition], route: Route, epoch: int) -> None:
    """Raise TakenOver if a later holder of the lease than that of `epoch` has left its own beside one of these offsets."""
    newest = max((note_of(at).epoch for at in committed.values()), default=0)
    if newest > epoch:
        raise TakenOver(
            f"another process has taken {route.query} over (epoch {newest} of the lease, by the offsets of its group; this one has "
            f"{epoch}): this one stops"
        )


def leave_epoch(
    producers: Mapping[int, Producer], reader: Consumer, route: Route, partitions: Sequence[int], epoch: int
) -> dict[int, TopicPartition]:
    """The group's offsets, each with the epoch beside it, committed by its partition's producer: fenced, it sets nothing back.

    Raises KafkaException, a fatal one if another process has begun meanwhile.
    """
    found = committed_positions(reader, route.source, partitions)
    for partition, at in found.items():
        note = note_of(at)
        # A later one is of a lease that is gone with its object store: this process holds the one that counts.
        if note.epoch != epoch:
            metadata = replace(note, epoch=epoch).as_metadata()
            found[partition] = TopicPartition(route.source, partition, at.offset, metadata)
            commit_position(producers[partition], reader, found[partition])
    return found


def wait_for_predecessor(committed: Mapping[int, TopicPartition], seconds: float, stopping: threading.Event) -> None:
    """Give a predecessor in real-time mode, which nobody fences, and of which a mark tells, time to find the epoch. Raises StopRequested."""
    is_real_time = any(note_of(at).mark is not None for at in committed.values())
    if is_real_time and stopping.wait(seconds):
        raise StopRequested("asked to stop while the last holder of the lease finds out that it has a successor")

"""What goes on beside a query in real-time mode, whatever else takes long: `Tending`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import structlog
from botocore.exceptions import BotoCoreError, ClientError
from confluent_kafka import KafkaException

from contracts.errors import ConsumeError
from spark.queries.real_time.every import Every
from spark.queries.real_time.headway import Headway
from spark.queries.real_time.meter import Meter
from spark.queries.real_time.positions import RealTimePositions
from spark.queries.real_time.query import DELIVERY_SECONDS
from spark.runtime.errors import StopRequested
from spark.runtime.lifecycle import Lifecycle
from spark.runtime.metrics import BEHIND
from spark.sinks.kafka.follower import Follower
from spark.sinks.kafka.offset_note import Mark
from spark.sinks.kafka.sink import Route
from spark.sinks.kafka.tail import positions_of

OUTAGES = (KafkaException, ConsumeError, BotoCoreError, ClientError)
"""Of the brokers, or of the object store."""

_WATCH_SECONDS = 0.1
_LOOK_SECONDS = 1.0
_STUCK_SECONDS = DELIVERY_SECONDS + 60.0
"""For so long a partition may have records and not move. If the producer gave one up, its task learns of it only at the next record."""
_CLOSE_LOOK_SECONDS = 60.0
"""Between two looks at what such a partition stands before; one may take ten seconds."""

_log = structlog.get_logger(__name__)


class Tending:
    """Of one query, and of those that take over from it. It follows what they write, commits positions, and looks at the limit of dead letters, at the lease and at
    what metrics tell, each in its time: call it in every loop.
    """

    def __init__(
        self,
        route: Route,
        lifecycle: Lifecycle,
        positions: RealTimePositions,
        headway: Headway,
        meter: Meter,
        follower: Follower | None,
        commit_seconds: float,
    ) -> None:
        """Without a `follower` positions are told by the ends of intervals alone."""
        self._route, self._lifecycle, self._positions, self._headway = route, lifecycle, positions, headway
        self._meter, self.follower = meter, follower
        self._watch, self._look, self._look_closely = map(Every, (_WATCH_SECONDS, _LOOK_SECONDS, _CLOSE_LOOK_SECONDS))
        self._commit_in_time = Every(commit_seconds, waits=True)
        # Without a follower, where an interval has ended that is not committed yet, and the target topics' ends before it had.
        self._ended: tuple[Mapping[int, int], Mark] | None = None
        # The partitions that were stuck at the last look, where, and the target topics' ends when that was first seen.
        self._stuck: tuple[Mapping[int, int], Mark] | None = None
        self._unanswered: set[Callable[..., object]] = set()

    def __call__(self) -> None:
        """Raises StopRequested when asked to stop, TakenOver, SinkRefused."""
        if self._lifecycle.stopping.is_set():
            raise StopRequested("asked to stop")
        if not self._watch.is_due():
            return
        if self.follower is not None:
            self.follower.read()
        is_look = self._look.is_due()
        if is_look:
            self._lifecycle.check_lease()
            self._ask(self._look_at_topics)
            # Though the look had no answer: one target partition that is away holds back no other one's positions.
            if self._commit_in_time.is_due():
                self._ask(self._commit)
        self._ask(self._meter.check_dead_letters, self.has_written, tells=is_look)

    @property
    def has_answers(self) -> bool:
        """Whether brokers answered each question the last time, a commit of some seconds ago included. A query that began anew would wait for all of them; the one that
        runs goes on with those that are there.
        """
        return not self._unanswered

    @property
    def ends(self) -> Mark:
        """The target topics', of the last look."""
        return self._meter.ends

    @property
    def source_ends(self) -> Mapping[int, int]:
        """Of the source topic's partitions that answered at the last look."""
        return self._meter.source_ends

    def end_interval(self, positions: Mapping[int, int], before: Mark) -> None:
        """Take in, and commit, where Spark says that an interval has ended; `before` are the target topics' ends when it hadn't yet. If brokers don't answer, it is
        committed later. Raises TakenOver.
        """
        self._headway.forget_failures()
        if self.follower is None:
            self._meter.move_to(positions)
            self._ended = positions, before
        else:
            # It may know of more than this interval.
            self.follower.move_to(positions, before)
        self._ask(self._commit)

    def has_written(self, positions: Mapping[int, int]) -> bool:
        """Whether all records below these positions are written, by what has been read so far. Without a follower nobody knows better."""
        return self.follower is None or self.follower.has_written(positions)

    def given_up(self) -> str | None:
        """What is wrong if a partition has stood before a record for too long, though all that was written by then has been read: the producer has given it up. Raises
        KafkaException.
        """
        stuck = self._headway.still_since(time.monotonic() - _STUCK_SECONDS)
        if self.follower is None or not stuck:
            self._stuck = None
            return None
        if self._stuck is None or self._stuck[0] != stuck:
            self._stuck = stuck, self._meter.log_ends()
        # What is not read yet is on its way, or an open transaction of somebody else hides it.
        if self.follower.behind(self._stuck[1]) or not self._look_closely.is_due():
            return None
        lost = sorted(self.follower.before_records(stuck))
        if not lost:
            return None
        return f"nothing came of the next records of {self._route.source}, partitions {lost}, in {_STUCK_SECONDS:.0f} s"

    def _look_at_topics(self) -> None:
        before = self._meter.ends
        try:
            self._meter.look()
        finally:
            # Not by old ends, which it reaches for sure.
            if self.follower is not None and self._meter.ends is not before:
                BEHIND.labels(self._route.query).set(self.follower.behind(self._meter.ends))

    def _commit(self) -> None:
        if self.follower is not None:
            self._commit_followed(self.follower)
        elif self._ended is not None:
            self._positions.commit_interval(*self._ended)
            self._ended = None

    def _commit_followed(self, follower: Follower) -> None:
        # What was written while brokers were asked; that takes seconds if one is away.
        follower.read()
        taken = follower.to_commit()
        positions = positions_of(taken)
        ends, progress, now = self._meter.source_ends, self._lifecycle.progress, time.monotonic()
        progress.take_in(self._route.query, self._headway.move_to(positions, ends, now))
        self._meter.move_to(positions)
        # A partition that is away counts only if all are: whoever started the process again for it would stop the others.
        if ends and not self._headway.still_since(now).keys() & ends.keys():
            progress.hear(self._route.query)
        self._positions.commit(taken)

    def _ask(self, question: Callable[..., object], *arguments: object, tells: bool = True) -> None:
        """Of brokers. Where they don't answer, the log tells it; the query itself waits for them."""
        try:
            question(*arguments)
            self._unanswered.discard(question)
        except OUTAGES as error:
            self._unanswered.add(question)
            if tells:
                _log.warning("brokers do not answer", query=self._route.query, error=str(error))

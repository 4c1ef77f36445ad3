"""From one query to the next without a pause: `Changeover`.

The second query is planned, and its first records wait, while the first query goes on. Only then, and if what it takes is written soon, is the first one asked
for its partitions (`spark.queries.real_time.baton`). A partition without records has nothing to be given away with: once all that it has is written, it is given
away here.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

import structlog
from confluent_kafka import KafkaException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark.queries.real_time.baton import Baton
from spark.queries.real_time.every import Every
from spark.queries.real_time.query import failure_of
from spark.runtime.errors import NotWritten, QueryFailed
from spark.runtime.internals.real_time import has_begun, running_tasks
from spark.sinks.kafka.follower import Follower

_LOOK_SECONDS, _OFTEN_SECONDS, _ASK_SECONDS = 0.05, 0.01, 0.2
_STARTED_SECONDS = 30.0
_WAITING_SECONDS = 1.0
"""How long to wait for a record of each partition."""
_FOLLOWED_SECONDS = _WRITTEN_SECONDS = 10.0
_GIVEN_SECONDS = 20.0
"""All of these together are shorter than a record waits, even if brokers are late a few times."""
_TASKS_END_SECONDS = 5.0

_log = structlog.get_logger(__name__)


class Changeover:
    """From the query `before`. Whatever it raises until the baton is asked, `before` can go on."""

    def __init__(
        self,
        spark: SparkSession,
        baton: Baton,
        before: StreamingQuery,
        follower: Follower,
        tend: Callable[[], object],
    ) -> None:
        """`tend` is called all the while; what it raises is raised."""
        self._spark, self._baton, self._before, self._follower, self._tend = spark, baton, before, follower, tend
        self._partitions = baton.partitions
        self._queries = [before]

    def begin(self) -> None:
        """Have `before` watched. Raises QueryFailed if tasks of another one still run, or it ends."""
        if not self._until(lambda: running_tasks(self._spark) <= len(self._partitions), _TASKS_END_SECONDS):
            raise QueryFailed(f"tasks of a query that was stopped still run after {_TASKS_END_SECONDS:.0f} s")
        self._baton.watch()

    def pass_partitions_to(self, after: StreamingQuery) -> dict[int, int]:
        """Return when `after` has each of the partitions, with the offsets from which on it has them; `before` may be stopped then, though not all that it took may be
        written.

        Raises NotWritten, and QueryFailed if one of both ends or something takes too long. If the baton is asked by then, stop both: the topics tell what is written.
        """
        count = len(self._partitions)
        self._queries.append(after)

        def is_everywhere() -> bool:
            return len(self._baton.second_at()) == count

        def is_given() -> bool:
            return len(self._baton.given()) == count

        if not self._until(lambda: is_everywhere() or has_begun(self._spark, after, count), _STARTED_SECONDS):
            slots = self._spark.sparkContext.defaultParallelism
            raise QueryFailed(
                f"the tasks of {after.name} have not started in {_STARTED_SECONDS:.0f} s: the machine is busy, or Spark's {slots} slots don't "
                f"do for two queries with {count} each"
            )
        self._until(is_everywhere, _WAITING_SECONDS)
        self._until(self._baton.is_at_the_heels, _FOLLOWED_SECONDS)
        self.check_written()
        # A partition that went away meanwhile has no record to be given away with, and nobody knows its end.
        if away := self._follower.away(self._partitions):
            raise NotWritten(f"partitions {away} of the source topic are away: brokers do not answer")
        if running_tasks(self._spark) > 2 * count:
            raise QueryFailed("tasks of a query that was stopped still run")
        _log.info("asking the query for its partitions", query=self._before.name)
        self._baton.ask()

        def give() -> None:
            self._baton.give(self._follower.written_to_the_end(self._partitions - self._baton.given().keys()))

        if not self._until(is_given, _GIVEN_SECONDS, find_out=give, look_seconds=_OFTEN_SECONDS):
            raise QueryFailed(f"{self._before.name} has not given its partitions away in {_GIVEN_SECONDS:.0f} s")
        return self._baton.given()

    def check_written(self) -> None:
        """Raise NotWritten if what `before` takes isn't written soon. It goes on waiting for its target partitions, which a query that took over could not."""
        noted: dict[int, int] = {}
        at_the_end: set[int] = set()

        def others() -> frozenset[int]:
            nonlocal noted
            noted = self._baton.first_at() | noted
            return self._partitions - noted.keys() - at_the_end

        def is_written() -> bool:
            return not others() and self._follower.has_written(noted)

        def find_out() -> None:
            # Behind the last record there may be markers.
            at_the_end.update(self._follower.written_to_the_end(others()))

        if not self._until(is_written, _WRITTEN_SECONDS, find_out=find_out):
            raise NotWritten(
                f"what {self._before.name} took is not written in {_WRITTEN_SECONDS:.0f} s: a target partition is slow, away, or refuses a record"
            )

    def _until(
        self,
        done: Callable[[], bool],
        seconds: float,
        *,
        find_out: Callable[[], object] = lambda: None,
        look_seconds: float = _LOOK_SECONDS,
    ) -> bool:
        """Whether `done` holds within `seconds`. Meanwhile `tend` is called all the time, and `find_out`, which asks brokers, every 0.2 s; that once more after the
        deadline, for the others may have taken until then. Raises QueryFailed if a query ends.
        """
        deadline, asking = time.monotonic() + seconds, Every(_ASK_SECONDS, waits=True)
        is_late = False
        while not done():
            for query in self._queries:
                if not query.isActive:
                    raise QueryFailed(f"{query.name} has ended: {failure_of(query)}")
            if is_late:
                return False
            self._tend()
            time.sleep(look_seconds)
            is_late = time.monotonic() > deadline
            if is_late or asking.is_due():
                with suppress(KafkaException):
                    find_out()
        return True

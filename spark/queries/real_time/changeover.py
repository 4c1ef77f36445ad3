"""From one query to the next without a pause: `change_over`.

The second query is planned, and its first records wait, while the first query goes on. Only then is the first one asked for its partitions
(`spark.queries.real_time.baton`). A partition without records has nothing to be given away with: once all that it has is written, it is given away here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

import structlog
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark.queries.real_time.baton import Baton
from spark.queries.real_time.query import failure_of
from spark.runtime.errors import QueryFailed
from spark.runtime.internals.real_time import has_begun
from spark.sinks.kafka.follower import Follower

_LOOK_SECONDS, _OFTEN_SECONDS = 0.05, 0.01
_STARTED_SECONDS = 30.0
_WAITING_SECONDS = 1.0
"""How long to wait for a record of each partition."""
_FOLLOWED_SECONDS = 10.0
_IDLE_SECONDS = 0.2
_GIVEN_SECONDS = _WRITTEN_SECONDS = 20.0
"""All of these together are shorter than a record waits."""

_log = structlog.get_logger(__name__)


def change_over(
    spark: SparkSession,
    baton: Baton,
    before: StreamingQuery,
    after: StreamingQuery,
    follower: Follower,
    partitions: Collection[int],
    tend: Callable[[], None],
) -> None:
    """Return when `after` has each of the partitions, all that `before` took is written, and that is stopped. `tend` is called all the while.

    Raises QueryFailed if one of both ends or something takes too long, KafkaException, and what `tend` raises. Then stop both: the topics tell what is written.
    """

    def until(done: Callable[[], bool], seconds: float, look_seconds: float = _LOOK_SECONDS) -> bool:
        end = time.monotonic() + seconds
        while not done():
            for query in (before, after):
                if not query.isActive:
                    raise QueryFailed(f"{query.name} has ended: {failure_of(query)}")
            tend()
            if time.monotonic() > end:
                return False
            time.sleep(look_seconds)
        return True

    def is_everywhere() -> bool:
        return len(baton.reached()) == len(partitions)

    if not until(lambda: is_everywhere() or has_begun(spark, after, len(partitions)), _STARTED_SECONDS):
        raise QueryFailed(f"the tasks of {after.name} have not started in {_STARTED_SECONDS:.0f} s")
    until(is_everywhere, _WAITING_SECONDS)
    until(baton.is_followed, _FOLLOWED_SECONDS)
    _log.info("asking the query for its partitions", query=before.name)
    baton.ask()
    end = time.monotonic() + _GIVEN_SECONDS
    while not until(lambda: len(baton.given()) == len(partitions), _IDLE_SECONDS, _OFTEN_SECONDS):
        baton.give(follower.written_to_the_end(set(partitions) - baton.given().keys()))
        if time.monotonic() > end:
            raise QueryFailed(f"{before.name} has not given its partitions away in {_GIVEN_SECONDS:.0f} s")
    # Its tasks learn of a failed send only at the next write, and there is none.
    given = baton.given()
    end = time.monotonic() + _WRITTEN_SECONDS
    while not until(lambda: follower.has_reached(given), _IDLE_SECONDS):
        follower.found()
        if time.monotonic() > end:
            raise QueryFailed(f"what {before.name} took is not written in {_WRITTEN_SECONDS:.0f} s")
    before.stop()

"""From one query to the next without a pause: `pass_partitions`.

The second query is planned, and its first records wait, while the first query goes on. Only then, and if what it takes is written soon, is the first one asked for its partitions
(`spark.queries.real_time.baton`). A partition without records has nothing to be given away with: once all that it has is written, it is given away here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress

import structlog
from confluent_kafka import KafkaException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark.queries.real_time.baton import Baton
from spark.queries.real_time.query import DELIVERY_SECONDS, failure_of
from spark.runtime.errors import QueryFailed
from spark.runtime.internals.real_time import has_begun
from spark.sinks.kafka.follower import Follower

_LOOK_SECONDS, _OFTEN_SECONDS = 0.05, 0.01
_STARTED_SECONDS = 30.0
_WAITING_SECONDS = 1.0
"""How long to wait for a record of each partition."""
_FOLLOWED_SECONDS = _FLOWS_SECONDS = 10.0
_IDLE_SECONDS = 0.2
_GIVEN_SECONDS = 20.0
"""All of these together are shorter than a record waits."""
_WRITTEN_SECONDS = DELIVERY_SECONDS + 60.0
"""Nothing waits for that but the first query's end."""

_log = structlog.get_logger(__name__)


def pass_partitions(
    spark: SparkSession,
    baton: Baton,
    before: StreamingQuery,
    after: StreamingQuery,
    follower: Follower,
    partitions: Collection[int],
    tend: Callable[[], None],
) -> None:
    """Return when `after` has each of the partitions, and all that `before` took is written, so that it can be stopped. `tend` is called all the while.

    Raises QueryFailed if one of both ends or something takes too long, KafkaException, and what `tend` raises. Was the baton not asked by then, `before` can go
    on without `after`. Else stop both: the topics tell what is written.
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

    def written(positions: Mapping[int, int], seconds: float) -> bool:
        end = time.monotonic() + seconds
        while not until(lambda: follower.has_reached(positions), _IDLE_SECONDS):
            # Behind the last record there may be markers. Brokers that are away are asked again.
            with suppress(KafkaException):
                follower.settle()
            if time.monotonic() > end:
                return False
        return True

    def is_everywhere() -> bool:
        return len(baton.second_at()) == len(partitions)

    if not until(lambda: is_everywhere() or has_begun(spark, after, len(partitions)), _STARTED_SECONDS):
        slots = spark.sparkContext.defaultParallelism
        raise QueryFailed(
            f"the tasks of {after.name} have not started in {_STARTED_SECONDS:.0f} s: two queries need {2 * len(partitions)} slots, and Spark has {slots}"
        )
    until(is_everywhere, _WAITING_SECONDS)
    until(baton.is_at_the_heels, _FOLLOWED_SECONDS)
    # Else partitions would be given away whose records are not written for a long time: the first query waits for that.
    if not written(baton.first_at(), _FLOWS_SECONDS):
        raise QueryFailed(
            f"what {before.name} took is not written in {_FLOWS_SECONDS:.0f} s: a target partition is slow or away"
        )
    _log.info("asking the query for its partitions", query=before.name)
    baton.ask()
    end = time.monotonic() + _GIVEN_SECONDS
    while not until(lambda: len(baton.given()) == len(partitions), _IDLE_SECONDS, _OFTEN_SECONDS):
        with suppress(KafkaException):
            baton.give(follower.written_to_the_end(set(partitions) - baton.given().keys()))
        if time.monotonic() > end:
            raise QueryFailed(f"{before.name} has not given its partitions away in {_GIVEN_SECONDS:.0f} s")
    # Its tasks learn of a failed send only at the next write, and there is none.
    if not written(baton.given(), _WRITTEN_SECONDS):
        raise QueryFailed(f"what {before.name} took is not written in {_WRITTEN_SECONDS:.0f} s")

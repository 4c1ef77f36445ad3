"""From one query to the next without a pause: `change_over`.

The next query is planned, and its first records wait, while the one before goes on. Only then is that one asked for the baton
(`spark.queries.real_time.baton`). A partition without records has nothing to be given away with: that is done for it once all that it has is written.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark.queries.real_time.baton import Baton
from spark.queries.real_time.query import failure_of
from spark.runtime.errors import QueryFailed
from spark.runtime.internals.real_time import running_tasks
from spark.sinks.kafka.follower import Follower

_LOOK_SECONDS = 0.01
_STARTED_SECONDS = 60.0
_WAITING_SECONDS = 1.0
"""How long a partition may be without a record before nobody waits for one."""
_IDLE_SECONDS = 0.2
_GIVEN_SECONDS = 30.0


def change_over(
    spark: SparkSession,
    baton: Baton,
    before: StreamingQuery,
    after: StreamingQuery,
    follower: Follower,
    partitions: Collection[int],
    tend: Callable[[], None],
) -> None:
    """Return when `after` has each of the partitions, and `before` is stopped; `tend` is called all the while.

    Raises QueryFailed if one of both fails or a partition isn't given away, KafkaException, and what `tend` raises. Then stop both: what is
    written is in the topics.
    """

    def until(done: Callable[[], bool], seconds: float) -> bool:
        end = time.monotonic() + seconds
        while not done():
            for query in (before, after):
                if not query.isActive:
                    raise QueryFailed(failure_of(query))
            tend()
            if time.monotonic() > end:
                return False
            time.sleep(_LOOK_SECONDS)
        return True

    if not until(lambda: running_tasks(spark) >= 2 * len(partitions), _STARTED_SECONDS):
        raise QueryFailed(f"the tasks of the next query have not started in {_STARTED_SECONDS:.0f} s")
    until(lambda: len(baton.waiting(partitions)) == len(partitions), _WAITING_SECONDS)
    baton.ask()

    end = time.monotonic() + _GIVEN_SECONDS
    while not until(lambda: len(baton.given(partitions)) == len(partitions), _IDLE_SECONDS):
        baton.give(follower.written_to_the_end(set(partitions) - baton.given(partitions).keys()))
        if time.monotonic() > end:
            raise QueryFailed(f"the query before has not given its partitions away in {_GIVEN_SECONDS:.0f} s")
    before.stop()

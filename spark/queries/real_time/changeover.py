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
from spark.runtime.errors import QueryFailed
from spark.runtime.internals.real_time import running_tasks
from spark.sinks.kafka.follower import Follower

_LOOK_SECONDS = 0.01
_STARTED_SECONDS = 30.0
_WAITING_SECONDS = 1.0
"""How long a partition may be without a record before nobody waits for one."""
_IDLE_SECONDS = 0.2
_GIVEN_SECONDS = _WRITTEN_SECONDS = 20.0
"""All of these together are shorter than a record waits."""


def change_over(
    spark: SparkSession,
    baton: Baton,
    before: StreamingQuery,
    after: StreamingQuery,
    follower: Follower,
    partitions: Collection[int],
    tasks: int,
    tend: Callable[[], None],
) -> None:
    """Return when `after` has each of the partitions, all that `before` took is written, and that is stopped. So many `tasks` ran when `after` had not
    begun; `tend` is called all the while.

    Raises QueryFailed if one of both ends or something takes too long, KafkaException, and what `tend` raises. Then stop both: the topics tell what is written.
    """
    both = max(tasks, len(partitions)) + len(partitions)

    def until(done: Callable[[], bool], seconds: float) -> bool:
        end = time.monotonic() + seconds
        while not done():
            if not (before.isActive and after.isActive):
                raise QueryFailed(f"{before.name if after.isActive else after.name} has ended")
            tend()
            if time.monotonic() > end:
                return False
            time.sleep(_LOOK_SECONDS)
        return True

    if not until(lambda: running_tasks(spark) >= both, _STARTED_SECONDS):
        raise QueryFailed(f"the tasks of {after.name} have not started in {_STARTED_SECONDS:.0f} s")
    until(lambda: len(baton.waiting()) == len(partitions), _WAITING_SECONDS)
    baton.ask()
    end = time.monotonic() + _GIVEN_SECONDS
    while not until(lambda: len(baton.given()) == len(partitions), _IDLE_SECONDS):
        baton.give(follower.written_to_the_end(set(partitions) - baton.given().keys()))
        if time.monotonic() > end:
            raise QueryFailed(f"{before.name} has not given its partitions away in {_GIVEN_SECONDS:.0f} s")
    # It learns of a record that was not sent only with the next one, of which there is none.
    given = baton.given()
    end = time.monotonic() + _WRITTEN_SECONDS
    while not until(lambda: follower.has_reached(given), _IDLE_SECONDS):
        follower.found()
        if time.monotonic() > end:
            raise QueryFailed(f"what {before.name} took is not written in {_WRITTEN_SECONDS:.0f} s")
    before.stop()

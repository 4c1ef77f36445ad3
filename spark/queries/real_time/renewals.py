"""When a query in real-time mode has to be followed by another one, and why: `Renewals`."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import structlog

from contracts.servers.own_schema import OwnSchema
from spark.lookups.dimensions import Dimension, Dimensions
from spark.queries.real_time.every import Every
from spark.queries.real_time.headway import Headway
from spark.queries.real_time.positions import RealTimePositions
from spark.queries.real_time.queries import Queries, Running
from spark.queries.real_time.tending import OUTAGES, Tending
from spark.records.topic_schemas import TopicSchemas
from spark.runtime.errors import NotWritten
from spark.sources.source_topic import SourceTopic

_LOOK_SECONDS = 5.0
"""Between two looks at the dimensions, at the source topic, and at the pipeline's own schemas."""
_MOST_ATTEMPTS, _ATTEMPT_SECONDS = 3, 10.0
"""After so many attempts to change over, so far apart, the query is ended for the next one."""
_PRACTICE_RECORDS = 200
"""After so many, once it keeps up, a process changes over for the first time, to a query like the one that runs."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Renewal:
    """A query with these `dimensions`, and the schemas of now, is to follow."""

    dimensions: Mapping[str, Dimension]
    is_practice: bool = False
    adds_partitions: bool = False
    """The source has got some. Then the next query can't take over from the one that runs."""


class Renewals:
    """Tells of each query of one pipeline whether another one has to follow."""

    def __init__(
        self,
        query: str,
        source: SourceTopic,
        own: Sequence[OwnSchema],
        schemas: TopicSchemas,
        dimensions: Dimensions,
        positions: RealTimePositions,
        queries: Queries,
        headway: Headway,
        *,
        one_of_each: bool,
    ) -> None:
        self._query, self._source, self._own = query, source, own
        self._schemas, self._dimensions = schemas, dimensions
        self._positions, self._queries, self._headway = positions, queries, headway
        self._one_of_each = one_of_each
        self._practice_is_over = False
        self.start()

    def start(self) -> None:
        """A query has started, or taken over."""
        self._look = Every(_LOOK_SECONDS)
        self._failed, self._next_at = 0, 0.0

    def due(self, running: Running, tending: Tending) -> Renewal | None:
        """What is to follow now, if anything. Raises OUTAGES, and what tells that the source was made anew, or that the registry has lost the pipeline's own
        schemas.
        """
        if time.monotonic() < self._next_at:
            return None
        newest = running.dimensions
        if self._look.is_due():
            for each in self._own:
                each.check()
            self._source.check()
            if tending.has_answers and (added := self._positions.added()):
                _log.info("renewing the query", query=self._query, added_partitions=added)
                return Renewal(newest, adds_partitions=True)
            newest = self._dimensions.newest()
        is_practice = not self._is_outdated(running, newest)
        if is_practice and not self._may_practise(running, tending):
            return None
        if running.to_next is not None:
            self._practice_is_over = True
        elif not tending.has_answers:
            # A query that began anew would wait for brokers.
            return None
        what = "practising a changeover" if is_practice else "renewing the query"
        _log.info(what, query=self._query, **self._queries.versions(newest))
        return Renewal(newest, is_practice)

    def goes_on_after(self, error: Exception, renewal: Renewal, tending: Tending) -> bool:
        """Note that a changeover has failed. Return whether the query goes on, for another attempt. Brokers that are away or slow don't count: a query that began anew would
        wait for them, too.
        """
        if renewal.is_practice:
            return True
        self._next_at = time.monotonic() + _ATTEMPT_SECONDS
        if isinstance(error, (NotWritten, *OUTAGES)):
            return True
        self._failed += 1
        return self._failed < _MOST_ATTEMPTS or not tending.has_answers

    def _may_practise(self, running: Running, tending: Tending) -> bool:
        """Whether to change over to a query like this one. A branch that was never taken is not in what the JVM compiles: at the first changeover it drops the code of both
        queries. Done while little is compiled, that delays fewer records.
        """
        if self._practice_is_over or running.to_next is None or not tending.has_answers:
            return False
        return self._headway.keeps_up(_PRACTICE_RECORDS)

    def _is_outdated(self, running: Running, newest: Mapping[str, Dimension]) -> bool:
        """Whether these dimensions, or the schemas of now, are newer than the query's."""
        if not self._one_of_each and running.interval < 0 and self._schemas.current.foreign is not None:
            # Renewed before its first interval has ended, again and again, it would never get a position.
            return False
        self._schemas.renew()
        # A table that was made anew may have the version that it had.
        return newest != running.dimensions or self._queries.versions(newest) != running.versions

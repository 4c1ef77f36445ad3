"""`Replayer`: publishes a timeline's entries when the clock says that they happen."""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime
from threading import Event

import structlog
from prometheus_client import Gauge

from contracts.publisher import Publisher
from services.replay.clock import ReplayClock
from services.replay.clock_topic import ClockTopic
from services.replay.position import HEADER, START, Position
from services.replay.progress import Progress
from services.replay.timeline import Entry, Timeline
from services.replay.unfit import Unfit

_log = structlog.get_logger(__name__)

GO_ENTRIES = 5_000
"""At most so many entries at once; then clock and stop are looked at again."""
GO_SECONDS = 0.5
"""The longest sleep: a newer clock is followed within it."""
REPORT_SECONDS = 10.0

_LAG = Gauge("headrace_replay_lag_seconds", "How far the service is behind the replay clock, in seconds of event time.")
_EVENT_TIME = Gauge("headrace_replay_event_time_seconds", "Event time reached, in seconds since the epoch.")
_PUBLISHED = Gauge("headrace_replay_published", "Events and dead letters that this process has published, a count.")


class Replayer:
    """One run through a timeline, publishing what `progress` lacks, to the end of the replay."""

    def __init__(self, timeline: Timeline, progress: Progress, clocks: ClockTopic, publisher: Publisher) -> None:
        self._entries, self._progress = timeline.entries(), progress
        self._clocks, self._publisher = clocks, publisher
        self._published = 0
        self._reported_at = time.monotonic()

    def run(self, stop: Event, *, limit: int | None = None) -> str:
        """Publish until the replay ends, `limit` entries are sent or `stop` is set; which it was, in words.

        Raises DeliveryError when the broker refuses an event; the next run goes on after the last that it took.
        """
        clock = self._first_clock(stop)
        begin = START if self._clocks.begins_at is None else Position.at(self._clocks.begins_at)
        entry = next((entry for entry in self._entries if entry.position >= begin), None)
        while clock is not None and not stop.is_set():
            if entry is None:
                return "end of the data"
            if clock.ends_before(entry.position.occurred_at):
                return "end of the replay"
            entry = self._go(entry, clock, stop, limit)
            if self._published == limit:
                return "limit reached"
            if entry is not None:
                self._report(entry, clock)
                self._sleep(entry, clock, stop)
            clock = self._clocks.newest()
        return "stopped"

    def _first_clock(self, stop: Event) -> ReplayClock | None:
        clock = self._clocks.newest(wait_seconds=5.0)
        if clock is None:
            _log.info("waiting for the replay clock")
        while clock is None and not stop.is_set():
            clock = self._clocks.newest(wait_seconds=GO_SECONDS)
        return clock

    def _go(self, entry: Entry, clock: ReplayClock, stop: Event, limit: int | None) -> Entry | None:
        """Publish what is due, from `entry` on; the next entry, None at the end."""
        due = Position.at(clock.event_time(datetime.now(UTC)), sys.maxsize)
        upcoming: Entry | None = entry
        for _ in range(GO_ENTRIES):
            if upcoming is None or upcoming.position > due or self._published == limit or stop.is_set():
                break
            if not self._progress.has(upcoming):
                self._publish(upcoming)
                self._published += 1
            upcoming = next(self._entries, None)
        return upcoming

    def _publish(self, entry: Entry) -> None:
        headers = {HEADER: str(entry.position).encode()}
        if not isinstance(entry.content, Unfit):
            self._publisher.publish(entry.topic, entry.content, event_id=entry.id, headers=headers)
            return
        self._publisher.dead_letter(
            entry.topic,
            key=None,
            value=entry.letter,
            headers=headers | {"ce_id": entry.id.encode(), "content-type": b"application/json"},
            reason=entry.content.reason,
            error=entry.content.explanation,
            coordinate=None,
            stage="TRANSFORMATION",
        )

    def _sleep(self, entry: Entry, clock: ReplayClock, stop: Event) -> None:
        seconds = (clock.wall_time(entry.position.occurred_at) - datetime.now(UTC)).total_seconds()
        if seconds > 0:
            stop.wait(min(seconds, GO_SECONDS))

    def _report(self, entry: Entry, clock: ReplayClock) -> None:
        event_time = clock.event_time(datetime.now(UTC))
        reached = min(event_time, entry.position.occurred_at)
        lag_seconds = (event_time - reached).total_seconds()
        _LAG.set(lag_seconds)
        _EVENT_TIME.set(reached.timestamp())
        _PUBLISHED.set(self._published)
        if time.monotonic() - self._reported_at >= REPORT_SECONDS:
            self._reported_at = time.monotonic()
            _log.info("replaying", published=self._published, event_time=reached, lag_seconds=lag_seconds)

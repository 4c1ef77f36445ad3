"""`Replayer`: publishes a timeline's entries when the clock says that they happen."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from threading import Event

import structlog
from prometheus_client import Gauge

from contracts.publisher import Publisher
from services.replay.clock import ReplayClock
from services.replay.clock_topic import ClockTopic
from services.replay.progress import Progress
from services.replay.timeline import Entry, Timeline, milliseconds
from services.replay.unfit import Unfit

_log = structlog.get_logger(__name__)

GO_EVENTS = 5_000
"""At most so many events at once; then clock and stop are looked at again."""
GO_SECONDS = 0.5
"""The longest sleep: a newer clock is followed within it."""
REPORT_SECONDS = 10.0

_LAG = Gauge("headrace_replay_lag_seconds", "How far the service is behind the replay clock, in seconds of event time.")
_EVENT_TIME = Gauge("headrace_replay_event_time_seconds", "Event time reached, in seconds since the epoch.")
_ENTRIES = Gauge("headrace_replay_entries", "Events and dead letters that this process has published, a count.")


class Replayer:
    """One run through a timeline, from the first entry that `progress` lacks to the end of the replay."""

    def __init__(
        self, timeline: Timeline, progress: Progress, clocks: ClockTopic, publisher: Publisher, *, source: str
    ) -> None:
        self._timeline, self._progress, self._clocks, self._publisher = timeline, progress, clocks, publisher
        self._source = source
        self._published = 0
        self._reported_at = time.monotonic()

    def run(self, stop: Event, *, limit: int | None = None) -> str:
        """Publish until the replay ends, `limit` entries are sent or `stop` is set; which it was, in words.

        Raises DeliveryError when the broker refuses an event; the next run goes on after the last that it took.
        """
        clock = self._first_clock(stop)
        position = self._progress.first_open()
        if self._clocks.begins_at is not None:
            position = max(position, self._timeline.first_from(self._clocks.begins_at))
        while clock is not None and not stop.is_set():
            if position == len(self._timeline):
                return "end of the data"
            if clock.ends_before(self._timeline.occurred_at(position)):
                return "end of the replay"
            position = self._go(position, clock, stop, limit)
            if self._published == limit:
                return "limit reached"
            self._report(position, clock)
            self._sleep(position, clock, stop)
            clock = self._clocks.newest()
        return "stopped"

    def _first_clock(self, stop: Event) -> ReplayClock | None:
        clock = self._clocks.newest(wait_seconds=5.0)
        if clock is None:
            _log.info("waiting for the replay clock")
        while clock is None and not stop.is_set():
            clock = self._clocks.newest(wait_seconds=GO_SECONDS)
        return clock

    def _go(self, position: int, clock: ReplayClock, stop: Event, limit: int | None) -> int:
        """Publish what is due; the next position."""
        timeline, progress = self._timeline, self._progress
        due = milliseconds(clock.event_time(datetime.now(UTC)))
        end = min(position + GO_EVENTS, len(timeline))
        while position < end and timeline.time(position) <= due and self._published != limit and not stop.is_set():
            if not progress.has(timeline.stream(position), position):
                self._publish(timeline.entry(position), timeline.occurred_at(position))
                self._published += 1
            position += 1
        return position

    def _publish(self, entry: Entry, occurred_at: datetime) -> None:
        if isinstance(entry.content, Unfit):
            self._publisher.dead_letter(
                entry.topic,
                key=None,
                value=json.dumps(dict(entry.row)).encode(),
                headers={
                    "ce_id": entry.id.encode(),
                    "ce_source": self._source.encode(),
                    "ce_time": occurred_at.isoformat().encode(),
                    "content-type": b"application/json",
                },
                reason=entry.content.reason,
                error=entry.content.explanation,
                coordinate=None,
                timestamp_ms=None,
            )
        else:
            self._publisher.publish(entry.topic, entry.content, event_id=entry.id)

    def _sleep(self, position: int, clock: ReplayClock, stop: Event) -> None:
        if position < len(self._timeline):
            wait = (clock.wall_time(self._timeline.occurred_at(position)) - datetime.now(UTC)).total_seconds()
            if wait > 0:
                stop.wait(min(wait, GO_SECONDS))

    def _report(self, position: int, clock: ReplayClock) -> None:
        event_time = clock.event_time(datetime.now(UTC))
        reached = event_time
        if position < len(self._timeline):
            reached = min(event_time, self._timeline.occurred_at(position))
        lag_seconds = (event_time - reached).total_seconds()
        _LAG.set(lag_seconds)
        _EVENT_TIME.set(reached.timestamp())
        _ENTRIES.set(self._published)
        if time.monotonic() - self._reported_at >= REPORT_SECONDS:
            self._reported_at = time.monotonic()
            _log.info("replaying", published=self._published, event_time=reached, lag_seconds=lag_seconds)

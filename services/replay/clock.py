"""`ReplayClock`: which event time belongs to which wall-clock time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from contracts.events import ReplayStarted


@dataclass(frozen=True, slots=True)
class ReplayClock:
    """From `wall_at` on, event time runs on from `event_at`, `speed` seconds for each second; no further than
    `until_at`, None being no end.
    """

    event_at: datetime
    wall_at: datetime
    speed: float
    until_at: datetime | None

    @classmethod
    def of(cls, started: ReplayStarted) -> ReplayClock:
        """The clock that an event set."""
        return cls(started.event_at, started.wall_at, started.speed, started.until_at)

    def event_time(self, now: datetime) -> datetime:
        """The event time at wall-clock time `now`; stands still before `wall_at` and from `until_at` on."""
        try:
            event_time = self.event_at + max(now - self.wall_at, timedelta(0)) * self.speed
        except OverflowError:  # it is behind the year 9999
            event_time = datetime.max.replace(tzinfo=UTC)
        return event_time if self.until_at is None else min(event_time, self.until_at)

    def wall_time(self, occurred_at: datetime) -> datetime:
        """The wall-clock time at which an event is due."""
        return self.wall_at + (occurred_at - self.event_at) / self.speed

    def ends_before(self, occurred_at: datetime) -> bool:
        """Whether an event is beyond the end of the replay."""
        return self.until_at is not None and occurred_at > self.until_at

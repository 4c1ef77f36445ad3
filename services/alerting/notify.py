"""`Cooldown`: which alerts become notifications; no clock but the alerts' own event time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from contracts.events import AlertRaised


@dataclass(frozen=True, slots=True)
class Notification:
    """An alert to tell, and how many more of its rule and group were held back since the last one told."""

    alert: AlertRaised
    more: int

    @property
    def text(self) -> str:
        """One line for people."""
        more = f" (and {self.more} more)" if self.more else ""
        return f"[{self.alert.severity.value}] {self.alert.rule}: {self.alert.message}{more}"


@dataclass(slots=True)
class _Group:
    ends_at: datetime
    cooldown: timedelta
    held: int = 0
    latest: AlertRaised | None = None


class Cooldown:
    """Decides for one receiver. Between two notifications of the same rule and group pass `cooldown_seconds` of event time.

    What is held back is told in the next notification of its group; when the cooldown ends without one, the latest of
    the alerts held back is told then. Event time is the latest `occurred_at` seen, so it stands still without alerts.
    The state is lost with the process: then an alert may be told although it is in cooldown, and a count forgotten.
    """

    def __init__(self) -> None:
        self._now = datetime.min.replace(tzinfo=UTC)
        self._groups: dict[tuple[str, str], _Group] = {}

    def take(self, alert: AlertRaised) -> list[Notification]:
        """What to tell now that this alert was raised: summaries of cooldowns that ended, then this one unless held."""
        self._now = max(self._now, alert.occurred_at)
        key = (alert.rule, alert.group_key)
        told = self._ended(except_for=key)
        group = self._groups.get(key)
        if group is not None and alert.occurred_at < group.ends_at:
            group.held += 1
            group.latest = alert
            return told
        cooldown = timedelta(seconds=alert.cooldown_seconds)
        if cooldown:
            self._groups[key] = _Group(alert.occurred_at + cooldown, cooldown)
        return [*told, Notification(alert, more=0 if group is None else group.held)]

    def _ended(self, *, except_for: tuple[str, str]) -> list[Notification]:
        told = []
        for key, group in list(self._groups.items()):
            if key == except_for or group.ends_at > self._now:
                continue
            if group.latest is None:
                del self._groups[key]
            else:
                told.append(Notification(group.latest, more=group.held - 1))
                self._groups[key] = _Group(self._now + group.cooldown, group.cooldown)
        return told


def webhook_body(notification: Notification) -> dict[str, Any]:
    """The JSON that a webhook gets; `text` is the key that chat services show."""
    return {
        "text": notification.text,
        "more": notification.more,
        "alert": notification.alert.model_dump(mode="json"),
    }

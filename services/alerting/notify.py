"""`Cooldown`: which alerts become notifications; no clock but the alerts' own event time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from pydantic_core import to_json

from contracts.events import AlertRaised
from contracts.subscriber import Record


@dataclass(frozen=True, slots=True)
class Notification:
    """An alert to tell, and how many more of its rule and group were held back since the last one told."""

    record: Record[AlertRaised]
    more: int

    @property
    def alert(self) -> AlertRaised:
        """The record's."""
        return self.record.event

    @property
    def text(self) -> str:
        """One line for people."""
        more = f" (and {self.more} more)" if self.more else ""
        return f"[{self.alert.severity.value}] {self.alert.rule}: {self.alert.message}{more}"


@dataclass(slots=True)
class _Group:
    told_at: datetime
    cooldown: timedelta
    held: int = 0
    latest: Record[AlertRaised] | None = None


class Cooldown:
    """Decides for one receiver. An alert is held back if it occurred within `cooldown_seconds` of the one of its rule and
    group that was told last, before it or after it.

    What is held back is told in the next notification of its group; when the cooldown ends without one, the latest of
    the alerts held back is told then: with an alert of the same topic that occurred so much later. Event time stands still
    without alerts. One alert far from the others in event time makes others told early, and holds back none of them.
    The state is lost with the process: then an alert may be told although it is in cooldown, and a count forgotten.
    """

    def __init__(self) -> None:
        self._groups: dict[tuple[str, str, str], _Group] = {}

    def take(self, record: Record[AlertRaised]) -> list[Notification]:
        """What to tell now that this alert was raised: summaries of cooldowns that ended, then this one unless held."""
        alert = record.event
        key = (alert.topic, alert.rule, alert.group_key)
        told = self._ended(alert, except_for=key)
        group = self._groups.get(key)
        if group is not None and abs(alert.occurred_at - group.told_at) < group.cooldown:
            group.held += 1
            group.latest = record
            return told
        self._groups[key] = _Group(alert.occurred_at, timedelta(seconds=alert.cooldown_seconds))
        return [*told, Notification(record, more=0 if group is None else group.held)]

    def _ended(self, alert: AlertRaised, *, except_for: tuple[str, str, str]) -> list[Notification]:
        told = []
        for key, group in list(self._groups.items()):
            # Topics are read each at its own pace. The end itself may be behind the last year that there is.
            if key == except_for or key[0] != alert.topic or alert.occurred_at - group.told_at < group.cooldown:
                continue
            if group.latest is None:
                del self._groups[key]
            else:
                told.append(Notification(group.latest, more=group.held - 1))
                self._groups[key] = _Group(group.latest.event.occurred_at, group.cooldown)
        return told


def webhook_body(notification: Notification) -> bytes:
    """The JSON that a webhook gets; `text` is the key that chat services show. A value that JSON has no number for, such as
    Infinity, is null.
    """
    body = {"text": notification.text, "more": notification.more, "alert": notification.alert}
    return to_json(body, inf_nan_mode="null")

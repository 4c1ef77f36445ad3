"""`Cooldown`: which alerts become notifications; no clock but the alerts' own event time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush
from itertools import count
from typing import TypeAlias

from pydantic_core import to_json

from contracts.events import AlertRaised
from contracts.subscriber import Record

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MOST_BYTES = 32_000_000
_GROUP_BYTES = 1_000
_ALERT_BYTES = 4_000
"""Beside its texts: a pydantic model, its instants."""
_TIMES = 4
"""Bytes of memory that a byte of text takes at most."""
_SPARE_ENTRIES = 10


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


_Key: TypeAlias = tuple[str, str, str]
"""Topic, rule and group."""


@dataclass(eq=False, slots=True)
class _Group:
    number: int
    key: _Key
    told_at: datetime
    cooldown: timedelta
    held: int = 0
    latest: Record[AlertRaised] | None = None

    @property
    def ends_at(self) -> int:
        """In microseconds: it may be behind the last year that there is."""
        return _microseconds(self.told_at - _EPOCH) + _microseconds(self.cooldown)

    @property
    def size(self) -> int:
        """About how many bytes it takes."""
        texts = sum(map(len, self.key))
        if self.latest is None:
            return _GROUP_BYTES + _TIMES * texts
        record = self.latest
        texts += len(record.key or b"") + len(record.value or b"")
        texts += sum(len(name) + len(value or b"") for name, value in record.headers)
        return _GROUP_BYTES + _ALERT_BYTES + _TIMES * texts


class Cooldown:
    """Decides for one receiver. An alert is held back if it occurred, before it or after it, so near to the one of its rule and group that was
    told last: nearer than the `cooldown_seconds` of both.

    What is held back is told in the next notification of its group; when the cooldown ends without one, the latest of
    the alerts held back is told then: with an alert of the same topic that occurred so much later. Event time stands still
    without alerts. One alert far from the others in event time makes others told early, and holds back none of them.
    The state is lost with the process: then an alert may be told although it is in cooldown, and a count forgotten.

    Groups are named by values of records, so there may be any number. The cooldowns of all `receivers` together take `most_bytes`, each its
    share. What is beyond that is forgotten, the group told longest ago first, since its cooldown has the least left; what it held
    back is told. `cut` counts them: each may make a notification more, and none less.
    """

    def __init__(self, most_bytes: int = _MOST_BYTES, *, receivers: int = 1) -> None:
        self._most_bytes = most_bytes // receivers
        self._bytes = 0
        self._groups: dict[_Key, _Group] = {}  # the one told longest ago first
        self._by_number: dict[int, _Group] = {}
        # By topic, for topics are read each at its own pace: heaps of ends and numbers. A group's entry may outlive it.
        self._ends: dict[str, list[tuple[int, int]]] = {}
        self._entries = 0
        self._number = count()
        self.cut = 0

    def take(self, record: Record[AlertRaised]) -> list[Notification]:
        """What to tell now that this alert was raised: summaries of cooldowns that ended, and this one unless held."""
        alert = record.event
        key = (alert.topic, alert.rule, alert.group_key)
        told = self._ended(alert, except_for=key)
        group = self._groups.get(key)
        cooldown = timedelta(seconds=alert.cooldown_seconds)
        # A shortened one holds at once, a longer one from the next that is told.
        if group is not None and abs(alert.occurred_at - group.told_at) < min(group.cooldown, cooldown):
            self._bytes -= group.size
            group.held += 1
            group.latest = record
            self._bytes += group.size
        else:
            if group is not None:
                self._forget(group)
            self._begin(key, alert.occurred_at, cooldown)
            told.append(Notification(record, more=0 if group is None else group.held))
        return told + self._beyond_the_bound()

    def _ended(self, alert: AlertRaised, *, except_for: _Key) -> list[Notification]:
        heap, now = self._ends.get(alert.topic, []), _microseconds(alert.occurred_at - _EPOCH)
        over = []
        while heap and heap[0][0] <= now:
            group = self._by_number.get(heappop(heap)[1])
            self._entries -= 1
            if group is not None and group.key != except_for:
                over.append(group)
        if not heap:
            self._ends.pop(alert.topic, None)
        told = []
        for group in over:
            self._forget(group)
            if group.latest is not None:
                told.append(Notification(group.latest, more=group.held - 1))
                self._begin(group.key, group.latest.event.occurred_at, group.cooldown)
        return told

    def _beyond_the_bound(self) -> list[Notification]:
        told = []
        while self._bytes > self._most_bytes:
            group = next(iter(self._groups.values()))
            self._forget(group)
            self.cut += 1
            if group.latest is not None:
                told.append(Notification(group.latest, more=group.held - 1))
        return told

    def _begin(self, key: _Key, told_at: datetime, cooldown: timedelta) -> None:
        if cooldown <= timedelta():
            return
        group = _Group(next(self._number), key, told_at, cooldown)
        self._groups[key] = self._by_number[group.number] = group
        self._bytes += group.size
        self._await_end_of(group)
        if self._entries > 2 * len(self._groups) + _SPARE_ENTRIES:
            self._ends, self._entries = {}, 0
            for each in self._groups.values():
                self._await_end_of(each)

    def _await_end_of(self, group: _Group) -> None:
        heappush(self._ends.setdefault(group.key[0], []), (group.ends_at, group.number))
        self._entries += 1

    def _forget(self, group: _Group) -> None:
        del self._groups[group.key], self._by_number[group.number]
        self._bytes -= group.size


def _microseconds(span: timedelta) -> int:
    return span // timedelta(microseconds=1)


def webhook_body(notification: Notification) -> bytes:
    """The JSON that a webhook gets; `text` is the key that chat services show. A value that JSON has no number for, such as
    Infinity, is null.
    """
    body = {"text": notification.text, "more": notification.more, "alert": notification.alert}
    return to_json(body, inf_nan_mode="null")

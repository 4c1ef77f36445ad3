"""`Timeline`: a table's rows as entries in the order in which they happened."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush
from operator import attrgetter
from typing import Any, TypeAlias

from pydantic import BaseModel

from contracts.definitions.catalog import Catalog
from contracts.handle import Topic
from services.replay.position import Position
from services.replay.table import Row, Table
from services.replay.unfit import Unfit

LEAD = timedelta(hours=2)
"""No row may happen earlier than this before its own `time_hour`."""


Told: TypeAlias = BaseModel | Unfit | None
"""What a row is: an event, unfit for one, or nothing."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One turn of a timeline: an event of `topic`, or a row that is unfit for it; `stream` is where it is published."""

    position: Position
    topic: Topic[Any]
    stream: str
    id: str
    content: BaseModel | Unfit
    row: Row

    @property
    def is_unfit(self) -> bool:
        """Whether it is a dead letter."""
        return isinstance(self.content, Unfit)

    @property
    def letter(self) -> bytes:
        """The value of the dead letter that an unfit row becomes."""
        return json.dumps(dict(self.row)).encode()


class Timeline:
    """The entries of a table by position: always the same for the same table."""

    def __init__(
        self,
        table: Table,
        convert: Callable[[Row], Told | Sequence[Told]],
        identify: Callable[[Any], str],
        topics: Sequence[Topic[Any]],
        catalog: Catalog,
    ) -> None:
        """`convert` gives a row's event, or several, each of another topic; None when the row has nothing for these topics. `identify` gives an
        event's id.

        Unfit rows are dead letters of the first topic.
        """
        self._table, self._convert, self._identify, self._unfit_for = table, convert, identify, topics[0]
        self._dead_letters = catalog.topic(topics[0].name).dead_letter_topic
        self._topic_of: Mapping[type, Topic[Any]] = {topic.model: topic for topic in topics}
        self._time_of = {topic.model: attrgetter(catalog.topic(topic.name).occurred_at) for topic in topics}
        self.streams = (*(topic.name for topic in topics), self._dead_letters)
        """The topics that entries are published to, that for dead letters last."""

    def entries(self) -> Iterator[Entry]:
        """Every entry in order, each converted shortly before its turn.

        Rows are read hour by hour of `time_hour`, those without one last; an entry waits until no row that is still
        unread can come before it. Raises ValueError if one does.
        """
        waiting: list[tuple[Position, str, Entry]] = []
        hours = self._table.column("time_hour")
        hour, safe_until = datetime.min.replace(tzinfo=UTC), 0
        for number in sorted(range(len(self._table)), key=lambda number: hours[number] or "missing"):
            hour = _instant(hours[number]) or hour
            safe_until = Position.at(hour - LEAD).time if hour.year > 1 else 0
            while waiting and waiting[0][0].time < safe_until:
                yield heappop(waiting)[-1]
            for entry in self._of_row(number, hour):
                if entry.position.time < safe_until:
                    raise ValueError(f"row {number} of {self._table.name} happens more than {LEAD} before its hour")
                heappush(waiting, (entry.position, entry.stream, entry))
        while waiting:
            yield heappop(waiting)[-1]

    def _of_row(self, number: int, hour: datetime) -> Iterator[Entry]:
        row = self._table.row(number)
        told = self._convert(row)
        for content in told if isinstance(told, Sequence) else (told,):
            if content is not None:
                yield self._entry(number, row, content, hour)

    def _entry(self, number: int, row: Row, content: BaseModel | Unfit, hour: datetime) -> Entry:
        if isinstance(content, Unfit):
            position = Position.at(content.occurred_at or hour, number)
            return Entry(position, self._unfit_for, self._dead_letters, f"{self._table.name}-{number}", content, row)
        topic = self._topic_of[type(content)]
        position = Position.at(self._time_of[topic.model](content), number)
        return Entry(position, topic, topic.name, self._identify(content), content, row)


def _instant(time_hour: str | None) -> datetime | None:
    try:
        return None if time_hour is None else datetime.fromisoformat(time_hour)
    except ValueError:
        return None

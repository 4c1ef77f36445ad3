"""`Timeline`: a table's rows as entries in the order in which they happened."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from typing import Any

from pydantic import BaseModel

from contracts.catalog import Catalog
from contracts.handle import Topic
from services.replay.table import Row, Table
from services.replay.unfit import Unfit

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Entry:
    """One turn of a timeline: an event of `topic`, or a row that is unfit for it."""

    topic: Topic[Any]
    id: str
    content: BaseModel | Unfit
    row: Row


class Timeline:
    """Entries by position, from 0, ordered by event time and then by row number: always the same for the same table.

    Only times and row numbers are kept, and a row is converted again when its turn comes: events would take 300 MB.
    """

    def __init__(
        self,
        table: Table,
        convert: Callable[[Row], BaseModel | Unfit | None],
        identify: Callable[[Any], str],
        topics: Sequence[Topic[Any]],
        catalog: Catalog,
    ) -> None:
        """`convert` gives a row's event, None when the row has nothing for these topics; `identify` an event's id.

        Unfit rows are dead letters of the first topic.
        """
        self._table, self._convert, self._identify = table, convert, identify
        self._topic_of: Mapping[type, Topic[Any]] = {topic.model: topic for topic in topics} | {Unfit: topics[0]}
        names = (*(topic.name for topic in topics), catalog.topic(topics[0].name).dead_letter_topic)
        stream_of = {topic.model: stream for stream, topic in enumerate(topics)} | {Unfit: len(topics)}
        clock_of = {topic.model: attrgetter(catalog.topic(topic.name).occurred_at) for topic in topics}

        times, rows, streams = array("q"), array("L"), bytearray()
        time = 0
        for number, row in enumerate(table):
            content = convert(row)
            if content is None:
                continue
            occurred_at = content.occurred_at if isinstance(content, Unfit) else clock_of[type(content)](content)
            time = time if occurred_at is None else milliseconds(occurred_at)
            times.append(time)
            rows.append(number)
            streams.append(stream_of[type(content)])
        order = sorted(range(len(times)), key=times.__getitem__)
        self._times = array("q", map(times.__getitem__, order))
        self._rows = array("L", map(rows.__getitem__, order))
        self._streams = bytes(map(streams.__getitem__, order))
        self._names = names
        self.streams = tuple(names[stream] for stream in sorted(set(streams)))
        """The topics that entries go to, those for dead letters included."""

    def __len__(self) -> int:
        return len(self._times)

    def time(self, position: int) -> int:
        """Event time of an entry, in milliseconds since the epoch."""
        return self._times[position]

    def occurred_at(self, position: int) -> datetime:
        """Event time of an entry."""
        return EPOCH + self._times[position] * _MILLISECOND

    def stream(self, position: int) -> str:
        """Where an entry goes: one of `streams`."""
        return self._names[self._streams[position]]

    def entry(self, position: int) -> Entry:
        """The entry itself, converted from its row."""
        number = self._rows[position]
        row = self._table.row(number)
        content = self._convert(row)
        assert content is not None, "only rows with content have a position"
        identity = f"{self._table.name}-{number}" if isinstance(content, Unfit) else self._identify(content)
        return Entry(self._topic_of[type(content)], identity, content, row)

    def entries(self) -> Iterator[Entry]:
        """Every entry in order."""
        return map(self.entry, range(len(self)))

    def first_from(self, instant: datetime) -> int:
        """The first position at or after an instant."""
        return bisect_left(self._times, milliseconds(instant))

    def position(self, stream: str, identity: str, instant: datetime) -> int | None:
        """Where the entry with this id and event time stands in a stream; None if the table has no such row."""
        position = self.first_from(instant)
        while position < len(self) and self._times[position] == milliseconds(instant):
            if self.stream(position) == stream and self.entry(position).id == identity:
                return position
            position += 1
        return None


def milliseconds(instant: datetime) -> int:
    """An instant as milliseconds since the epoch."""
    return (instant - EPOCH) // _MILLISECOND

"""`Coordinate`: `topic/partition/offset` of a raw record, which is the id (`ce_id`) of the event that is derived from it.

Where one record becomes many, each event's id has the number of its part, from 0 on, as well: `topic/partition/offset/part`.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, NamedTuple, Self

if TYPE_CHECKING:
    from confluent_kafka import Message

_PLACE = "(?P<partition>0|[1-9][0-9]{0,4})/(?P<offset>0|[1-9][0-9]{0,12})"
"""Partition and offset without leading zeros, so that a record has one coordinate; more digits than any broker reaches."""
_PART = "/(?P<part>0|[1-9][0-9]{0,8})"
PARTS = "ce_parts"
"""Header of an event with the number of a part in its id: how many parts the raw record has, in decimal digits."""
_COORDINATE = re.compile(f"(?P<topic>[A-Za-z0-9._-]+)/{_PLACE}({_PART})?")
_IN_TOPIC = re.compile(_PLACE)


class Coordinate(NamedTuple):
    """Where a record lies, or which part of what is derived from it is meant. As text: `str`, and `parse` the other way.

    A tuple, for it is made for each record of a topic, and a frozen dataclass takes three times as long to make.
    """

    topic: str
    partition: int
    offset: int
    part: int | None = None

    def __str__(self) -> str:
        place = _text(self.topic, self.partition, self.offset)
        return place if self.part is None else f"{place}/{self.part}"

    @classmethod
    def of(cls, message: Message) -> Self:
        """Where a consumed message lies."""
        return cls(message.topic() or "", message.partition() or 0, message.offset() or 0)

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """None if the text is no coordinate of any topic's."""
        found = _COORDINATE.fullmatch(text)
        if found is None:
            return None
        part = found["part"]
        return cls(found["topic"], int(found["partition"]), int(found["offset"]), None if part is None else int(part))

    @classmethod
    def in_event(cls, topic: str, event_id: bytes | None, *, parts: bool = False) -> Self | None:
        """If an event's id is the coordinate of a record of this topic, of a part of one where the topic made of it has `parts`."""
        found = None if event_id is None else _compiled(topic, parts).fullmatch(event_id)
        if found is None:
            return None
        if parts:
            return cls(topic, int(found[1]), int(found[2]), int(found[3]))
        return cls(topic, int(found[1]), int(found[2]))

    @classmethod
    def said(cls, topic: str, partition: str, offset: str) -> Self | None:
        """Of texts that stand apart; None unless partition and offset are written as in a coordinate."""
        found = _IN_TOPIC.fullmatch(f"{partition}/{offset}")
        return None if found is None else cls(topic, int(found["partition"]), int(found["offset"]))

    @property
    def record(self) -> Self:
        """The raw record's: without the number of a part."""
        return self if self.part is None else self._replace(part=None)


def pattern(topic: str, *, parts: bool = False) -> str:
    """A regular expression for the coordinates of this topic's records, whole, all with `parts` or none; re and RE2 read it alike."""
    return f"^{re.escape(topic)}/{_PLACE}{_PART if parts else ''}$"


def coordinate_of(
    derived_from: str | None, topic: str, partition: int, offset: int, event_id: bytes | None, *, parts: bool = False
) -> str:
    """The coordinate, as text, that a record goes by: its event id, if its topic is `derived_from` another and the id is a coordinate
    there, with the number of a part where the topic has `parts`; else the record's own.
    """
    if derived_from is not None and event_id is not None and _compiled(derived_from, parts).fullmatch(event_id):
        return event_id.decode()
    return _text(topic, partition, offset)


def _text(topic: str, partition: int, offset: int) -> str:
    return f"{topic}/{partition}/{offset}"


@functools.cache
def _compiled(topic: str, parts: bool) -> re.Pattern[bytes]:
    return re.compile(pattern(topic, parts=parts).encode())

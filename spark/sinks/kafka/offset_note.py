"""`OffsetNote`: what stands beside an offset of the group, in its metadata."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import Self


@dataclass(frozen=True, slots=True)
class Mark:
    """Ends of the target topics' partitions, by topic, at a moment before anything behind a position was written."""

    ends: Mapping[str, tuple[int, ...]]

    @classmethod
    def oldest(cls, marks: Iterable[Self], written: Collection[str]) -> Self:
        """The lowest end of each partition; 0 of one that a mark lacks, for it was added since. A topic that is not `written` any more is not
        in later marks, and what lies in it beside these is accounted for.
        """
        found = list(marks)
        topics = {topic for each in found for topic in each.ends}
        of = {
            topic: [each.ends.get(topic, ()) for each in found if topic in each.ends or topic in written]
            for topic in topics
        }
        return cls({topic: tuple(map(min, zip_longest(*ends, fillvalue=0))) for topic, ends in of.items()})

    def places(self) -> Iterator[tuple[str, int, int]]:
        """Topic, partition and end, of each partition."""
        for topic, ends in self.ends.items():
            for partition, end in enumerate(ends):
                yield topic, partition, end

    def end(self, topic: str, partition: int) -> int:
        """0 of a partition that was added since."""
        ends = self.ends.get(topic, ())
        return ends[partition] if partition < len(ends) else 0

    def anew(self, topic: str, partition: int) -> Self:
        """The same, with the end 0 of this partition: one that was made anew is to be read from its beginning."""
        ends = {
            of: tuple(0 if (of, p) == (topic, partition) else end for p, end in enumerate(each))
            for of, each in self.ends.items()
        }
        return type(self)(ends)


@dataclass(frozen=True, slots=True)
class OffsetNote:
    """The `epoch` of the lease of who committed the offset, 0 without one; where the target topics tell what was written beyond it, None
    if records and position were written together; the id of the source topic, None if nobody has said.
    """

    epoch: int = 0
    mark: Mark | None = None
    topic: str | None = None

    def as_metadata(self) -> str:
        """As text. Brokers take 4,096 bytes, which a mark of some 150 partitions fills."""
        ends = {} if self.mark is None else {"ends": self.mark.ends}
        topic = {} if self.topic is None else {"topic": self.topic}
        return json.dumps({"epoch": self.epoch, **topic, **ends}, separators=(",", ":"))

    @classmethod
    def of(cls, metadata: str | None) -> Self:
        """Of what isn't ours, an empty one: anybody may set the group's offsets."""
        try:
            said = json.loads(metadata or "{}")
            topic = said.get("topic")
            return cls(
                _whole(said.get("epoch")) or 0, _mark(said.get("ends")), topic if isinstance(topic, str) else None
            )
        except (ValueError, AttributeError, RecursionError):
            return cls()


def _mark(ends: object) -> Mark | None:
    if not isinstance(ends, dict) or not all(isinstance(each, list) for each in ends.values()):
        return None
    found = {str(topic): tuple(map(_whole, each)) for topic, each in ends.items()}
    whole = {topic: tuple(end for end in each if end is not None) for topic, each in found.items()}
    return Mark(whole) if whole == found else None


def _whole(number: object) -> int | None:
    return number if isinstance(number, int) and 0 <= number < 1 << 63 else None

"""`Fold`: the newest record of each key of a topic, as the rows of a dimension; `Positions`: up to where it was read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self
from uuid import UUID

import pyarrow as pa
from confluent_kafka import Message

from contracts.definitions.dimension import DimensionContract
from contracts.errors import DecodeError
from contracts.records.codec import Codec
from contracts.records.coordinates import Coordinate
from contracts.records.headers import as_bytes
from contracts.records.limits import DIMENSION_TEXT_BYTES, RAW_BYTES, check_size
from services.dimensions.parse import schema_of
from services.dimensions.rejected import Rejected


@dataclass(frozen=True, slots=True)
class Positions:
    """Up to where a topic was read: by partition the offset of the next record. `topic_id` tells it from one of the same name, made anew."""

    topic: str
    topic_id: str
    offsets: Mapping[int, int]

    def is_behind(self, other: Positions) -> bool:
        """Whether the other has read a partition further."""
        return any(self.offsets.get(partition, 0) < offset for partition, offset in other.offsets.items())

    def json(self) -> str:
        """As a version's commit carries them."""
        offsets = {str(partition): self.offsets[partition] for partition in sorted(self.offsets)}
        return json.dumps({"topic": self.topic, "topic_id": self.topic_id, "offsets": offsets})

    @classmethod
    def parse(cls, text: str | None) -> Self | None:
        """None of a commit that carries none."""
        if text is None:
            return None
        said = json.loads(text)
        return cls(said["topic"], said["topic_id"], {int(key): value for key, value in said["offsets"].items()})


class Told(NamedTuple):
    """What a record says, and which of two says it later: that with the later time, in milliseconds since 1970, in partitions that differ."""

    timestamp_ms: int
    partition: int
    offset: int
    values: tuple[Any, ...]


@dataclass(slots=True)
class Fold:
    """One row for each key whose newest record can be one. Another takes its key away, as a record without a value does: compaction may remove the record before
    it, so that the next start would not find that. Thus the same positions give the same rows, whenever the topic is read.

    Records of a key follow each other by offset. It has rows of two partitions only where the topic was given more, or records with other
    keys tell of the same row: then the one with the later time counts.
    """

    contract: DimensionContract
    codec: Codec
    positions: dict[int, int] = field(default_factory=dict)
    is_changed: bool = True
    """Since whoever publishes it said otherwise."""
    contradictions: int = 0
    """Rows of which records with several keys told, when they were asked for last."""
    _newest: dict[tuple[int, bytes], Told] = field(default_factory=dict)

    def take(self, message: Message) -> Rejected | None:
        """A record, or why it can't be a row. Raises RegistryError: then it was not taken."""
        at = Coordinate.of(message)
        key, value = as_bytes(message.key()), as_bytes(message.value())
        values: tuple[Any, ...] | Rejected | None = None
        if value is not None:
            values = self._values(key, value)
        self.reach(at.partition, at.offset + 1)
        if key is None:
            return Rejected("NoKey", "the record has no key, so that no other could replace it")
        row = None if isinstance(values, Rejected) else values
        before = self._newest.pop((at.partition, key), None)
        if row is not None:
            self._newest[at.partition, key] = Told(message.timestamp()[1], at.partition, at.offset, row)
        # Where records with several keys tell of a row, one that says the same again may be the latest now.
        self.is_changed |= (before and before.values) != row or self.contradictions > 0
        return values if isinstance(values, Rejected) else None

    def reach(self, partition: int, offset: int) -> None:
        """Nothing lies before this offset that was not taken: the end of a partition may be behind its last record."""
        self.positions[partition] = max(offset, self.positions.get(partition, 0))

    def has_reached(self, ends: Mapping[int, int]) -> bool:
        """Whether each of these partitions was read up to this offset; one without records, when its end was seen."""
        return all(self.positions.get(partition, -1) >= end for partition, end in ends.items())

    def rows(self) -> pa.Table:
        """By key, in its order; the same for the same records, in whatever order partitions were read."""
        names = [column.name for column in self.contract.columns]
        places = [names.index(name) for name in self.contract.key]
        found: dict[tuple[Any, ...], Told] = {}
        twice = set()
        for told in self._newest.values():
            key = tuple(told.values[place] for place in places)
            if key in found:
                twice.add(key)
            found[key] = max(found.get(key, told), told, key=lambda each: each[:3])
        self.contradictions = len(twice)
        rows = [found[key].values for key in sorted(found)]
        return pa.table([[row[place] for row in rows] for place in range(len(names))], schema=schema_of(self.contract))

    def _values(self, key: bytes | None, value: bytes) -> tuple[Any, ...] | Rejected:
        try:
            check_size(key, value, RAW_BYTES)
            fields = self.codec.decode(value)
        except DecodeError as error:
            return Rejected(type(error).__name__, str(error))
        values = tuple(_plain(fields[column.source]) for column in self.contract.columns)
        for column, found in zip(self.contract.columns, values, strict=True):
            if found is None and not column.nullable:
                return Rejected("MissingValue", f"field {column.source} must have a value")
            if isinstance(found, str) and len(found.encode()) > DIMENSION_TEXT_BYTES:
                size = f"{len(found.encode())} bytes, at most {DIMENSION_TEXT_BYTES} fit into what looks it up"
                return Rejected("TooLong", f"field {column.source}: {size}")
        return values


def digest_of(rows: pa.Table) -> str:
    """The same for equal rows in the same order; hexadecimal."""
    digest = hashlib.sha256()
    for row in _rows(rows):
        digest.update(repr(row).encode())
    return digest.hexdigest()


def _rows(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    for batch in table.to_batches(max_chunksize=10_000):
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, UUID) else value

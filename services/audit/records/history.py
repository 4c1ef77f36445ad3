"""`History`: what a compacted topic still has, key by key, as the rows of the dimension that is made of it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

from contracts.definitions.dimension import DimensionContract
from contracts.errors import DecodeError, UnknownSchemaId
from contracts.records.codec import Codec
from contracts.records.headers import as_bytes
from contracts.records.limits import DIMENSION_TEXT_BYTES, RAW_BYTES, check_size
from contracts.servers.registry import Registry
from contracts.settings import RegistrySettings
from services.audit.records.writers import Writers
from services.audit.sources.consume import consume
from services.audit.sources.progress import advance

Row = tuple[Any, ...]
"""Values of the dimension's columns, in the contract's order."""


class Told(NamedTuple):
    """A record of a key: the row that it tells, or None where it takes the key away, for it has no value, or none that can be a row."""

    offset: int
    timestamp_ms: int
    row: Row | None


@dataclass(slots=True)
class History:
    """By partition and key what is there, in its order. Of records that a newer one of their key follows, compaction may have removed any, but never one
    and kept an older one: so of those before an offset the last one that is there was the last one that there was.
    """

    contract: DimensionContract
    ends: Mapping[int, int]
    """Up to which offsets it was read."""
    told: dict[tuple[int, bytes], list[Told]] = field(default_factory=dict)
    records: int = 0

    def take(self, partition: int, key: bytes | None, told: Told) -> None:
        """The next record of the partition; one without a key tells nothing."""
        self.records += 1
        if key is not None:
            self.told.setdefault((partition, key), []).append(told)

    def key_of(self, row: Row) -> Row:
        """The values of its key columns."""
        names = [column.name for column in self.contract.columns]
        return tuple(row[names.index(name)] for name in self.contract.key)

    def before(self, offsets: Mapping[int, int]) -> Iterator[tuple[int, bytes, Told | None, list[Told]]]:
        """Of each key the last record before these offsets, None if none is there any more, and those from there on."""
        for (partition, key), told in self.told.items():
            at = bisect_left(told, offsets.get(partition, 0), key=lambda each: each.offset)
            yield partition, key, told[at - 1] if at else None, told[at:]


def read_history(
    kafka: Mapping[str, str],
    registry: RegistrySettings,
    topic: str,
    subject: str,
    schema: str,
    contract: DimensionContract,
    starts: Mapping[int, int],
    ends: Mapping[int, int],
    known_by: float,
) -> History:
    """Raises what `consume` does, and RegistryUnavailable. `known_by`: see `Writers`."""
    history = History(contract, ends)
    with Registry(registry) as client:
        codec = Codec(_schemas(Writers(client, subject, known_by)), reader_schema=schema)
        for partition, start in starts.items():
            for batch in consume(kafka, topic, partition, start, ends[partition]):
                for message in batch:
                    key, value = as_bytes(message.key()), as_bytes(message.value())
                    row = None if value is None else row_of(contract, codec, key, value)
                    history.take(partition, key, Told(message.offset() or 0, message.timestamp()[1], row))
                advance(len(batch))
    return history


def row_of(contract: DimensionContract, codec: Codec, key: bytes | None, value: bytes) -> Row | None:
    """None if it can't be a row."""
    try:
        check_size(key, value, RAW_BYTES)
        event = codec.decode(value)
    except DecodeError:
        return None
    row = []
    for column in contract.columns:
        found = event[column.source]
        found = str(found) if isinstance(found, UUID) else found
        if found is None and not column.nullable:
            return None
        if isinstance(found, str) and len(found.encode()) > DIMENSION_TEXT_BYTES:
            return None
        row.append(found)
    return tuple(row)


def _schemas(writers: Writers) -> Callable[[int], str]:
    def get(schema_id: int) -> str:
        found = writers.get(schema_id)
        if found is None:
            raise UnknownSchemaId(f"schema id {schema_id} is in no version of the subject")
        return found

    return get

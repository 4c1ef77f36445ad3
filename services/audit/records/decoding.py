"""`Decoder`: the events of a topic, whoever's schema wrote them; `Decoding`: those of one writer's schema, by the topic's current one."""

from __future__ import annotations

import io
import json
from typing import Any, NamedTuple, Self

import fastavro

from contracts.errors import DecodeError
from contracts.records.avro_walk import Walk
from contracts.records.codec import NOT_AVRO
from contracts.records.evolution import Resolution, resolve
from contracts.records.wire import FRAME_BYTES, schema_id_of
from services.audit.records.writers import Writers
from services.audit.values.shape import reader_schema

_NONE = frozenset[str]()


class Event(NamedTuple):
    """`fields` are by the current schema, of which its writer's does not have those `absent`."""

    fields: dict[str, Any]
    absent: frozenset[str]


class Decoding:
    """Takes what `live` and `lake` take, whose decoder is Spark's, and nothing else: or their dead letters would be findings."""

    def __init__(self, writer: Any, reader: Any, how: Resolution | None) -> None:
        self._walk = Walk(writer, as_java=True)
        self._writer, self._reader, self._how = writer, reader, how

    @classmethod
    def of(cls, writer: str, current: str) -> Self | None:
        """For schemas as text; None if the writer's is of no record."""
        try:
            if json.loads(writer) == json.loads(current):
                return cls(reader_schema(writer), None, None)
            how = resolve(current, writer)
            return cls(reader_schema(writer), reader_schema(how.schema), how)
        except (DecodeError, *NOT_AVRO):
            return None

    def event(self, value: bytes) -> Event | None:
        """None if it can't be decoded."""
        try:
            for cut in reversed(self._walk(value, FRAME_BYTES)):
                value = value[: cut.start] + cut.taken_for + value[cut.end :]
            buffer = io.BytesIO(value)
            buffer.seek(FRAME_BYTES)
            event: Any = fastavro.schemaless_reader(buffer, self._writer, self._reader)
            if self._how is not None:
                self._how.narrow(event)
        # A body that doesn't fit makes fastavro raise what its cursor happens to run into.
        except Exception:  # noqa: BLE001
            return None
        return Event(event, _NONE if self._how is None else self._how.absent)


class Decoder:
    """Decodes values by the schema that each names; each is looked up once."""

    def __init__(self, writers: Writers, schema: str) -> None:
        """`schema` is the topic's current one."""
        self._writers, self._schema = writers, schema
        self._decodings: dict[bytes, Decoding | None] = {}

    def event(self, value: bytes | None) -> Event | None:
        """None of what can't be decoded. Raises RegistryUnavailable, RegistryRefused."""
        if value is None or len(value) <= FRAME_BYTES:
            return None
        frame = value[:FRAME_BYTES]
        if frame not in self._decodings:
            self._decodings[frame] = self._lookup(frame)
        decoding = self._decodings[frame]
        return None if decoding is None else decoding.event(value)

    def _lookup(self, frame: bytes) -> Decoding | None:
        """None if there is no such id, or it is of another subject: `live` and `lake` don't read it either."""
        schema_id = schema_id_of(frame)
        writer = None if schema_id is None else self._writers.get(schema_id)
        return None if writer is None else Decoding.of(writer, self._schema)

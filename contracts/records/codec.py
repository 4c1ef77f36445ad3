"""`Codec`: events as Avro bodies on the Confluent wire format (`contracts.records.wire`)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Any, cast

import fastavro
from fastavro.read import SchemaResolutionError
from fastavro.schema import SchemaParseException

from contracts.errors import (
    EncodeError,
    ForeignBody,
    Malformed,
    TooLong,
    Truncated,
    Unresolvable,
    WrongMagic,
)
from contracts.records.avro_walk import Walk
from contracts.records.evolution import BITS, Resolution, resolve
from contracts.records.limits import DERIVED_BYTES
from contracts.records.wire import FRAME_BYTES, MAGIC, frame, schema_id_of

MAX_BYTES = DERIVED_BYTES
"""The largest record that any topic has."""

_AVRO_FILE = b"Obj\x01"
NOT_AVRO = (SchemaParseException, ValueError, KeyError, TypeError, AttributeError, RecursionError)
"""What comes of taking any text for an Avro record's schema: fastavro has no one exception for it."""
_TEXT_BYTES = bytes([9, 10, 13, *range(32, 127)])


@dataclass(frozen=True, slots=True)
class _Writer:
    """What is kept for one schema id."""

    frame: bytes
    parsed: Any
    reader: Any
    """The schema to resolve to; None where it is the writer's own, which fastavro would find out for each body anew."""
    resolution: Resolution | None
    """What `reader` is of."""
    integers: tuple[tuple[str, int, bool], ...]
    walk: Walk


class Codec:
    """Encodes and decodes events.

    `schema_by_id` gives a writer's schema as JSON text (`Registry.by_id`); what it raises passes through, so that an
    unknown id is UnknownSchemaId and an outage RegistryUnavailable. With `reader_schema`, decoded events have that
    schema's fields, by Avro's rules of schema resolution and, where the writer is the newer one, by those of
    `contracts.records.evolution`. `max_bytes` is the largest body, in bytes, frame included.

    A body takes at most 16 times its size plus 1 MiB of memory to decode, whatever it claims; collections of tens of
    thousands of tiny elements would take more and are refused as TooLong.
    """

    def __init__(
        self, schema_by_id: Callable[[int], str], *, reader_schema: str | None = None, max_bytes: int = MAX_BYTES
    ) -> None:
        self._schema_by_id = schema_by_id
        self._reader_text = reader_schema
        self._reader: Any = None if reader_schema is None else fastavro.parse_schema(json.loads(reader_schema))
        self._max_bytes = max_bytes
        self._writers: dict[int, _Writer] = {}

    def encode(self, schema_id: int, fields: Mapping[str, object]) -> bytes:
        """The body of an event. Instants are aware datetimes, dates `date`, UUIDs `UUID`, decimals `Decimal`.

        Raises EncodeError, naming the field, if one is missing, unknown or not of its type; TooLong if the body would
        be larger than `max_bytes`.
        """
        writer = self._writers.get(schema_id) or self._writer(schema_id)
        buffer = BytesIO()
        buffer.write(writer.frame)
        try:
            for name, bits, nullable in writer.integers:
                value = fields[name]
                # fastavro would cut 1.5 to 1 and write an int of 40 bits, which Java readers refuse.
                if type(value) is int:
                    if not -(1 << bits) <= value < 1 << bits:
                        raise EncodeError(f"field {name}: {value} has more than {bits + 1} bits")
                elif value is not None or not nullable:
                    raise EncodeError(f"field {name}: not an integer but {type(value).__name__}")
            fastavro.schemaless_writer(buffer, writer.parsed, fields, strict=True)
        except KeyError as error:
            raise EncodeError(f"field {error.args[0]} is missing") from error
        except (ValueError, TypeError, AttributeError, OverflowError) as error:
            raise EncodeError(f"{writer.parsed['name']}: {error}") from error
        if buffer.tell() > self._max_bytes:
            raise TooLong(f"the body has {buffer.tell()} bytes, more than {self._max_bytes}")
        return buffer.getvalue()

    def decode(self, body: bytes) -> dict[str, Any]:
        """The fields of the event in `body`.

        Raises the DecodeError that says what is wrong with the body.
        """
        schema_id = self._schema_id(body)
        writer = self._writers.get(schema_id) or self._writer(schema_id)
        writer.walk(body, FRAME_BYTES)
        buffer = BytesIO(body)
        buffer.seek(FRAME_BYTES)
        try:
            fields: Any = fastavro.schemaless_reader(buffer, writer.parsed, writer.reader)
        except SchemaResolutionError as error:
            raise Unresolvable(f"schema id {schema_id}: {error}") from error
        except UnicodeDecodeError as error:
            raise Malformed(f"text is not UTF-8: {error.reason}") from error
        except (ValueError, OverflowError, ArithmeticError) as error:
            raise Malformed(f"a value is out of its type's range: {error}") from error
        if writer.resolution is not None:
            writer.resolution.narrow(fields)
        return cast(dict[str, Any], fields)

    def _schema_id(self, body: bytes) -> int:
        if len(body) > self._max_bytes:
            raise TooLong(f"the body has {len(body)} bytes, more than {self._max_bytes}")
        if body[:1] != MAGIC:
            if not body:
                raise Truncated("the body is empty")
            if body.startswith(_AVRO_FILE):
                raise ForeignBody("the body is an Avro container file")
            if not body[:64].translate(None, _TEXT_BYTES):
                raise ForeignBody("the body is text")
            raise WrongMagic(f"the first byte is 0x{body[0]:02x}, not 0x00")
        schema_id = schema_id_of(body)
        if schema_id is None:
            raise Truncated(f"the body has {len(body)} bytes, fewer than the {FRAME_BYTES} of the frame")
        return schema_id

    def _writer(self, schema_id: int) -> _Writer:
        text = self._schema_by_id(schema_id)
        try:
            parsed: Any = fastavro.parse_schema(json.loads(text))
            how = None if self._reader_text is None or parsed == self._reader else resolve(self._reader_text, text)
            writer = _Writer(
                frame(schema_id),
                parsed,
                None if how is None else fastavro.parse_schema(json.loads(how.schema)),
                how,
                tuple(_integers(parsed)),
                Walk(parsed, reader_fields=_most_fields(self._reader)),
            )
        except NOT_AVRO as error:
            raise Unresolvable(f"schema id {schema_id} is not an Avro record: {error}") from error
        self._writers[schema_id] = writer
        return writer


def _integers(parsed: Any) -> list[tuple[str, int, bool]]:
    """The record's plain int and long fields: name, bits of magnitude, whether null is a value too."""
    found = []
    for field in parsed["fields"]:
        kind = field["type"]
        plain = [branch for branch in kind if branch != "null"] if isinstance(kind, list) else [kind]
        if plain in (["int"], ["long"]):
            found.append((field["name"], BITS[plain[0]], isinstance(kind, list)))
    return found


def _most_fields(schema: Any) -> int:
    """The largest number of fields that one record in `schema` has."""
    if isinstance(schema, list):
        return max(map(_most_fields, schema), default=0)
    if not isinstance(schema, dict):
        return 0
    fields = schema.get("fields", [])
    inner = [field["type"] for field in fields] + [schema.get("items"), schema.get("values")]
    return max(len(fields), *map(_most_fields, inner))

"""`Decoder`: what can be made out of the value of a dead letter."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from io import BytesIO
from typing import Any

import fastavro

from contracts.dead_letters.letter import DeadLetter
from contracts.definitions.catalog import Catalog
from contracts.errors import DecodeError, HeadraceError, RegistryError, RegistryRefused, TrailingBytes, UnknownSchemaId
from contracts.records.avro_walk import Walk
from contracts.records.codec import NOT_AVRO, Codec
from contracts.records.wire import FRAME_BYTES, schema_id_of
from contracts.servers.registry import Registry


@dataclass(frozen=True, slots=True)
class Decoded:
    """`fields` are those that could be read, all of them if `problem` is None; `text` is a value that is no Avro. A `problem` is why readers of
    the record's topic would still refuse it.
    """

    fields: dict[str, Any] | None = None
    text: str | None = None
    problem: str | None = None


class Decoder:
    """Decodes as far as possible, in bounded memory. A registry that does not answer is asked once."""

    def __init__(self, registry: Registry, catalog: Catalog) -> None:
        self._registry, self._catalog = registry, catalog
        self._codec = Codec(self._schema)
        self._outage: RegistryError | None = None

    def decode(self, letter: DeadLetter) -> Decoded:
        """Never raises because of the letter."""
        found = self._decoded(letter.value)
        contract = None if letter.origin is None else self._catalog.topics.get(letter.origin.topic)
        if contract is None or letter.value is None or found.fields is None or found.problem is not None:
            return found
        try:
            self._asked(partial(self._registry.by_id_of, contract.subject, schema_id_of(letter.value) or 0))
        except (UnknownSchemaId, RegistryError) as error:
            return replace(found, problem=str(error))
        return found

    def _decoded(self, value: bytes | None) -> Decoded:
        if value is None:
            return Decoded(problem="there is no value")
        try:
            return Decoded(fields=self._codec.decode(value))
        except UnknownSchemaId as error:
            return Decoded(problem=str(error))
        except DecodeError as error:
            problem = f"{type(error).__name__}: {error}"
        except RegistryError as error:
            return Decoded(problem=str(error))
        schema_id = schema_id_of(value)
        if schema_id is not None and len(value) > FRAME_BYTES:
            try:
                return self._beginning(schema_id, value, problem)
            except (HeadraceError, *NOT_AVRO):  # its schema can't be had, or is of no record
                return Decoded(problem=problem)
        text = _text(value)
        return Decoded(text=text, problem=None if text is not None else problem)

    def _beginning(self, schema_id: int, value: bytes, problem: str) -> Decoded:
        """The fields before the first one that can't be read."""
        schema: Any = fastavro.parse_schema(json.loads(self._schema(schema_id)))
        fields = schema["fields"]
        for count in range(len(fields), 0, -1):
            beginning: Any = {**schema, "fields": fields[:count]}
            try:
                Walk(beginning)(value, FRAME_BYTES)
            except TrailingBytes:
                pass
            except DecodeError:
                continue
            try:
                read: Any = fastavro.schemaless_reader(BytesIO(value[FRAME_BYTES:]), beginning, None)
            except (ValueError, OverflowError, ArithmeticError):
                continue
            where = f", in field {fields[count]['name']}" if count < len(fields) else ""
            return Decoded(fields=read, problem=f"{problem}{where}")
        return Decoded(problem=problem)

    def _schema(self, schema_id: int) -> str:
        return self._asked(partial(self._registry.by_id, schema_id))

    def _asked(self, ask: Callable[[], str]) -> str:
        if self._outage is not None:
            raise self._outage
        try:
            return ask()
        except RegistryRefused:
            raise
        except RegistryError as error:
            self._outage = error
            raise


def _text(value: bytes) -> str | None:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return None
    return text if all(character.isprintable() or character in "\t\r\n" for character in text) else None

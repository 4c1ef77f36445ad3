"""The decoded entries of a small contracted topic: the ledger of dead letters, the rules that were activated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from contracts.codec import Codec
from contracts.errors import DecodeError
from contracts.registry import Registry
from contracts.settings import RegistrySettings
from services.audit.consume import consume


def entries(
    kafka: Mapping[str, str], registry: RegistrySettings, topic: str, schema: str, partition: int, start: int, end: int
) -> Iterator[tuple[str, dict[str, Any] | DecodeError]]:
    """Coordinate and fields by `schema` of each, or why it can't be decoded. Raises what `consume` does, and RegistryUnavailable."""
    with Registry(registry) as client:
        codec = Codec(client.by_id, reader_schema=schema)
        for batch in consume(kafka, topic, partition, start, end):
            for message in batch:
                place = f"{topic}/{partition}/{message.offset()}"
                body = message.value()
                try:
                    entry = codec.decode(body if isinstance(body, bytes) else b"")
                except DecodeError as error:
                    yield place, error
                else:
                    yield place, entry

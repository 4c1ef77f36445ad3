"""The entries of a small contracted topic: the ledger of dead letters, the rules that were activated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic

from pydantic import ValidationError

from contracts.errors import DecodeError
from contracts.handle import E
from contracts.records.codec import Codec
from contracts.records.coordinates import Coordinate
from contracts.servers.registry import Registry
from contracts.settings import RegistrySettings
from services.audit.sources.consume import consume
from services.audit.values.finding import Tally

_NAMED = 20


@dataclass(slots=True)
class Entries(Generic[E]):
    """Those of one topic in its order, and the coordinates of the records that are none."""

    topic: str
    found: list[E] = field(default_factory=list)
    others: list[str] = field(default_factory=list)

    def tally(self) -> Tally:
        """What is worth knowing: a record that is no entry. Nobody goes by it, so it is nothing wrong."""
        tally = Tally("entries", self.topic)
        if self.others:
            more = " …" if len(self.others) > _NAMED else ""
            tally.notes[f"that are no entries, passed over: {', '.join(self.others[:_NAMED])}{more}"] = len(self.others)
        return tally

    def read(
        self,
        kafka: Mapping[str, str],
        registry: RegistrySettings,
        schema: str,
        model: type[E],
        partition: int,
        start: int,
        end: int,
    ) -> None:
        """Add those of a partition, by `schema`. Raises what `consume` does, and RegistryUnavailable."""
        with Registry(registry) as client:
            codec = Codec(client.by_id, reader_schema=schema)
            for batch in consume(kafka, self.topic, partition, start, end):
                for message in batch:
                    body = message.value()
                    try:
                        self.found.append(model.model_validate(codec.decode(body if isinstance(body, bytes) else b"")))
                    except (DecodeError, ValidationError):
                        self.others.append(str(Coordinate.of(message)))

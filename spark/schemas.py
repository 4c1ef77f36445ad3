"""The schemas that a topic's records were written with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WriterSchemas:
    """What `decode` needs of a topic: Avro schemas as JSON text.

    `reader` is the schema that the events come out in, `writers` those that they were written in, by schema id.
    """

    subject: str
    reader: str
    writers: Mapping[int, str]

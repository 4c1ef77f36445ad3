"""The schemas that a topic's records were written with."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from contracts.records.limits import RAW_BYTES


@dataclass(frozen=True, slots=True)
class WriterSchemas:
    """What `decode` needs of a topic: Avro schemas as JSON text.

    `reader` is the schema that the events come out in, `writers` those that they were written in, by schema id. `foreign` are
    other ids, which make dead letters: one that is neither here nor there fails the task, so that it can be looked up (`unknown_id`).
    With None, all other ids are foreign. `most_bytes` is the size of the topic's largest record.
    """

    subject: str
    reader: str
    writers: Mapping[int, str]
    foreign: frozenset[int] | None = None
    most_bytes: int = RAW_BYTES


def never_null(schema: str) -> list[str]:
    """The fields of an Avro schema, JSON text, whose type has no null, in their order."""
    kinds = {field["name"]: field["type"] for field in json.loads(schema)["fields"]}
    return [name for name, kind in kinds.items() if "null" not in (kind if isinstance(kind, list) else [kind])]

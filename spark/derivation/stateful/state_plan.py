"""`state_plan`: whether a pipeline can go on with the state of another start, as a hash."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection
from typing import Any

from fastavro.schema import expand_schema

from contracts.checks.compatibility import incompatibilities
from contracts.definitions.catalog import Catalog

_OLD_READ_BY_NEW = ("BACKWARD", "BACKWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE")
"""Modes in which a new version of a schema reads the records of the one before it; of all before it, that is looked at besides."""


def state_plan(catalog: Catalog, used: dict[str, Collection[str]], told: Any) -> str:
    """16 hexadecimal digits. Of each source topic in `used` they depend on its time of the events, and on how the fields used, and no others, are read;
    besides on what is `told`, which JSON can say.

    Where a new version of a topic's schema need not, or does not, read the records of every version before it, they depend on its whole schema: a record
    that was counted may be a bad one by the new version.
    """
    read = [[topic, catalog.topic(topic).occurred_at, *_read(catalog, topic, fields)] for topic, fields in used.items()]
    return hashlib.sha256(json.dumps([read, told]).encode()).hexdigest()[:16]


def _read(catalog: Catalog, topic: str, fields: Collection[str]) -> list[Any]:
    """The fields of the topic's schema that decide how these are read, by name. Descriptions change nothing."""
    contract, schema = catalog.topic(topic), _without_docs(expand_schema(catalog.parsed_schema(topic)))
    if contract.compatibility not in _OLD_READ_BY_NEW or incompatibilities(
        catalog.schemas(topic), "BACKWARD_TRANSITIVE"
    ):
        return [schema]
    needed = {*fields, contract.occurred_at}
    return sorted((each for each in schema["fields"] if each["name"] in needed), key=lambda each: str(each["name"]))


def _without_docs(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_docs(each) for each in schema]
    if isinstance(schema, dict):
        # A field's default may have any names in it.
        return {
            name: part if name == "default" else _without_docs(part)
            for name, part in sorted(schema.items())
            if name != "doc"
        }
    return schema

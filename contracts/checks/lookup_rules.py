"""What a pipeline's lookups must keep beside the contracts of its source and of the dimensions: `lookup_faults`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from fastavro.schema import expand_schema

from contracts.checks.schema_rules import kind, non_null
from contracts.definitions.catalog import Catalog, instead
from contracts.definitions.dimension import DimensionContract
from contracts.definitions.lookup import Lookup
from contracts.errors import ContractError
from contracts.records.codec import NOT_AVRO

_NAME = re.compile(r"[a-z0-9_]+(\.[a-z0-9_]+)*")
_INSTANTS = ("timestamp-millis", "timestamp-micros")
_LOGICAL = ("date", "decimal", "local-timestamp-millis", "local-timestamp-micros", *_INSTANTS)
"""Logical types of which Spark takes notice; any other is what it is without."""


class LookupFault(NamedTuple):
    """A lookup, what is wrong with it, and what to do."""

    lookup: Lookup
    what: str
    cure: str


def lookup_faults(lookups: Iterable[Lookup], source: str, catalog: Catalog) -> Iterator[LookupFault]:
    """All faults of the lookups of a pipeline that reads the topic `source`. Raises ContractError if that has no contract, or its schema is none."""
    kinds = _column_types(catalog, source)
    there, names = {*kinds}, set[str]()
    for lookup in lookups:
        if lookup.found in names or not _NAME.fullmatch(lookup.name):
            cure = "choose another, of lower-case words with points between"
            yield LookupFault(lookup, "its name is not one of its own", cure)
        for field in lookup.fields:
            if field in there:
                yield LookupFault(lookup, f"{field} is filled in already", "choose another name")
        there |= {*lookup.fields}
        names.add(lookup.found)
        if (dimension := catalog.dimensions.get(lookup.dimension)) is None:
            yield LookupFault(
                lookup, f"there is no dimension {lookup.dimension}", instead(lookup.dimension, catalog.dimensions)
            )
        else:
            for what, cure in _faults_of_columns(lookup, source, kinds, dimension):
                yield LookupFault(lookup, what, cure)


def _faults_of_columns(
    lookup: Lookup, source: str, kinds: Mapping[str, str], dimension: DimensionContract
) -> Iterator[tuple[str, str]]:
    """What is wrong and the cure, for the dimension's columns and the fields, of `kinds`, that it looks up by."""
    columns = {column.name: column.type for column in dimension.columns}
    for name in lookup.fields.values():
        if name not in columns:
            yield f"{dimension.name} has no column {name}", instead(name, columns)
    by, key = lookup.by_fields, dimension.key
    if len(by) != len(key):
        what = f"{dimension.name} has the key {', '.join(key)}, it looks up by {', '.join(by)}"
        yield what, "name one field for each"
    elif len({*by}) < len(by):
        # Spark would filter the dimension's rows by it, and a kept broadcast bears no filter.
        yield f"it looks up by {', '.join(by)}", "name each field once"
    for field, column in zip(by, key, strict=False):
        if field not in kinds:
            yield f"{source} has no field {field}", instead(field, kinds)
        elif column in columns and kinds[field] != columns[column]:
            what = f"{field} is {kinds[field]}, the key column {column} of {dimension.name} is {columns[column]}"
            yield what, "look up by a field of the column's type"
    if lookup.as_of is None:
        if dimension.valid is not None:
            yield f"the rows of {dimension.name} hold for a time", "name the event's time with as_of"
    elif dimension.valid is None:
        yield f"{dimension.name} has one row for each key, which holds at any time", "leave as_of out"
    elif lookup.as_of not in kinds:
        yield f"{source} has no field {lookup.as_of}", instead(lookup.as_of, kinds)
    elif kinds[lookup.as_of] not in _INSTANTS:
        yield f"{lookup.as_of} is {kinds[lookup.as_of]}", f"look up as of a field of type {' or '.join(_INSTANTS)}"


def _column_types(catalog: Catalog, source: str) -> dict[str, str]:
    """The types of a topic's fields, as a dimension's columns would have them."""
    try:
        schema: Any = expand_schema(catalog.parsed_schema(source))
        return {field["name"]: _column_type(field["type"]) for field in schema["fields"]}
    except (*NOT_AVRO, IndexError) as error:
        raise ContractError(f"the schema of {source} is none ({error}): run headrace contracts check") from None


def _column_type(schema: Any) -> str:
    schema = non_null(schema)
    if isinstance(schema, dict) and schema.get("logicalType") not in _LOGICAL:
        schema = schema["type"]
    found = kind(schema)
    return "string" if found == "enum" else found

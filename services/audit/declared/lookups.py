"""`Lookups`: what an enrichment looks up in the dimensions, said a second time beside Spark's code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa
from pydantic import BaseModel, ConfigDict

from contracts.definitions.catalog import Catalog
from contracts.errors import ContractError
from services.audit.declared.told_files import load
from services.audit.values.shape import Shape

_TYPES = {
    "string": pa.string(),
    "int": pa.int64(),
    "long": pa.int64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
}
"""Types of a dimension's columns, as those of an event's fields in a `Shape`."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Join(_Part):
    """One lookup: `by` is the field with the dimension's key, or those with its columns, in their order; `fields` are those that are
    filled in, with their columns; `name` stands in the list of unmatched lookups. `as_of` is the field with the instant that is looked up, in a
    dimension whose rows hold for a time.
    """

    name: str
    dimension: str
    by: str | tuple[str, ...]
    fields: dict[str, str]
    as_of: str | None = None

    @property
    def by_fields(self) -> tuple[str, ...]:
        """What `by` says, one field for each column of the key."""
        return (self.by,) if isinstance(self.by, str) else self.by

    @property
    def needs(self) -> tuple[str, ...]:
        """All fields that say which row is looked up."""
        return self.by_fields if self.as_of is None else (*self.by_fields, self.as_of)


class Lookups(_Part):
    """Those of one topic. `versions` is the field that says which version of each dimension was joined, `unmatched` the one
    that lists the joins which found nothing.
    """

    versions: str
    unmatched: str
    joins: tuple[Join, ...]

    @property
    def fields(self) -> tuple[str, ...]:
        """Every field that can be recomputed."""
        return (*(field for join in self.joins for field in join.fields), self.unmatched)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a dimension is: its table's prefix in the bucket, the columns of its key, and those that say from when until when a row holds."""

    location: str
    key: tuple[str, ...]
    interval: tuple[str, str] | None


@dataclass(frozen=True, slots=True)
class Recomputed:
    """The lookups of a topic, and where their dimensions are."""

    lookups: Lookups
    places: Mapping[str, Place]


def load_lookups(path: Path, catalog: Catalog) -> dict[str, Recomputed]:
    """By topic. Raises CouldNotAudit, naming file and key, if it is not readable or names what no contract knows."""
    return load(path, Lookups, partial(_placed, catalog))


def _placed(catalog: Catalog, topic: str, lookups: Lookups) -> Recomputed:
    schema = catalog.schema(topic)
    fields = Shape(schema).columns
    for field in (*lookups.fields, lookups.versions, *(field for join in lookups.joins for field in join.needs)):
        if f'"{field}"' not in schema:
            raise ContractError(f"{topic} has no field {field}")
    places = {}
    for join in lookups.joins:
        contract = catalog.dimension(join.dimension)
        if missing := set(join.fields.values()) - {column.name for column in contract.columns}:
            raise ContractError(f"{join.dimension} has no column {', '.join(sorted(missing))}")
        if len(join.by_fields) != len(contract.key):
            by, key = ", ".join(join.by_fields), ", ".join(contract.key)
            raise ContractError(
                f"{join.dimension} has the key {key}, {join.name} looks up by {by}: name one field for each"
            )
        types = {column.name: _TYPES[column.type] for column in contract.columns}
        for field, name in zip(join.by_fields, contract.key, strict=True):
            if fields.get(field) != types[name]:
                raise ContractError(
                    f"{field} of {topic} is {fields.get(field)}, the key column {name} of {join.dimension} is {types[name]}"
                )
        if (join.as_of is None) != (contract.valid is None):
            what = "hold for a time" if join.as_of is None else "hold at any time"
            raise ContractError(
                f"the rows of {join.dimension} {what}, {join.name} looks up as of {join.as_of or 'none'}: "
                f"{'name a field with as_of' if join.as_of is None else 'leave as_of out'}"
            )
        instant = None if join.as_of is None else fields.get(join.as_of)
        if join.as_of is not None and (instant is None or not pa.types.is_timestamp(instant)):
            raise ContractError(f"{join.as_of} of {topic} is no instant, and {join.name} looks up as of it")
        interval = None if contract.valid is None else (contract.valid.begins, contract.valid.ends)
        places[join.dimension] = Place(contract.location, contract.key, interval)
    return Recomputed(lookups, places)

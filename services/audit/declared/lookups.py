"""`Lookups`: what an enrichment looks up in the dimensions, said a second time beside Spark's code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from contracts.definitions.catalog import Catalog
from contracts.errors import ContractError
from services.audit.declared.told_files import load


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Join(_Part):
    """One lookup: `by` is the field with the dimension's key, `fields` those that are filled in, with their columns; `name`
    stands in the list of unmatched lookups.
    """

    name: str
    dimension: str
    by: str
    fields: dict[str, str]


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
    """Where a dimension is: its table's prefix in the bucket, and its key column."""

    location: str
    key: str


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
    for field in (*lookups.fields, lookups.versions, *(join.by for join in lookups.joins)):
        if f'"{field}"' not in schema:
            raise ContractError(f"{topic} has no field {field}")
    places = {}
    for join in lookups.joins:
        contract = catalog.dimension(join.dimension)
        if missing := set(join.fields.values()) - {column.name for column in contract.columns}:
            raise ContractError(f"{join.dimension} has no column {', '.join(sorted(missing))}")
        if len(contract.key) != 1:
            raise ContractError(f"{join.dimension} has a key of several columns, which no lookup can name yet")
        places[join.dimension] = Place(contract.location, contract.key[0])
    return Recomputed(lookups, places)
